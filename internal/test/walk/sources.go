package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"slices"
)

// A function that is declared in a file.
type function struct {
	name     string // as in: Lease.Release
	receiver string // its type; "" if it has none
	body     int    // where in the file its body begins
}

// functions returns those of a source, and where its package clause ends.
func functions(file string, source []byte) (all []function, clause int, err error) {
	files := token.NewFileSet()
	parsed, err := parser.ParseFile(files, file, source, parser.SkipObjectResolution)
	if err != nil {
		return nil, 0, err
	}
	for _, d := range parsed.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || fn.Body == nil {
			continue
		}
		f := function{name: fn.Name.Name, body: files.Position(fn.Body.Lbrace).Offset + 1}
		if fn.Recv != nil {
			f.receiver = receiver(fn.Recv.List[0].Type)
			f.name = f.receiver + "." + f.name
		}
		all = append(all, f)
	}
	return all, files.Position(parsed.Name.End()).Offset, nil
}

func receiver(t ast.Expr) string {
	switch x := t.(type) {
	case *ast.ParenExpr:
		return receiver(x.X)
	case *ast.StarExpr:
		return receiver(x.X)
	case *ast.IndexExpr:
		return receiver(x.X)
	case *ast.IndexListExpr:
		return receiver(x.X)
	case *ast.Ident:
		return x.Name
	}
	return "?"
}

// instrument returns a source with a recorder at the start of each function. No line moves.
func instrument(file string, source []byte) ([]byte, error) {
	all, clause, err := functions(file, source)
	if err != nil || len(all) == 0 {
		return source, err
	}
	text := string(source)
	for _, f := range slices.Backward(all) {
		if f.name != "init" { // it runs before any journey
			text = text[:f.body] + fmt.Sprintf(" defer walkrecorder.In(%q)(); ", file+":"+f.name) + text[f.body:]
		}
	}
	text = text[:clause] + fmt.Sprintf("; import walkrecorder %q", module+"/"+here+"/recorder") + text[clause:]
	return []byte(text), nil
}

// countTypes adds the types whose methods stand in more than enough files.
func (f figures) countTypes(sources map[string][]byte) error {
	files := make(map[string]int)
	for file, source := range sources {
		all, _, err := functions(file, source)
		if err != nil {
			return err
		}
		in := path.Dir(file)
		if in == "." {
			in = path.Base(module)
		}
		here := make(map[string]bool)
		for _, fn := range all {
			if fn.receiver != "" {
				here[ofType+in+"."+fn.receiver] = true
			}
		}
		for t := range here {
			files[t]++
		}
	}
	for t, n := range files {
		if n > enough {
			f[t] = n
		}
	}
	return nil
}
