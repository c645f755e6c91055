package pages_test

import (
	"go/ast"
	"go/doc"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const wordsOfAFirstSentence = 30

var (
	article       = regexp.MustCompile(`^(?:An? |The )`)
	negation      = regexp.MustCompile(`\b(?:not|never|cannot|no longer|neither)\b`)
	ofTheLanguage = regexp.MustCompile(`\.(?:Error|Is|Unwrap|String)$`)
	returned      = regexp.MustCompile(`\b(?:is returned|is joined to|answers|refuses|is the cause|is the answer|matches|is matched by)\b`)
	person        = regexp.MustCompile(`(?i)\b(?:nobody|somebody|anybody|everybody|whoever|himself|anew)\b`)
	clause        = regexp.MustCompile(`[,:(]| (?:whether|if|when|while|that|which|unless|until|because|so|and|or|whose|without) `)
)

// wrongWith says what keeps the comment on an exported name from being understood by its
// first sentence alone: one plain sentence that begins with the name and says what it does.
func wrongWith(name, first string) string {
	words := strings.Fields(first)
	first = strings.Join(words, " ")
	_, says, begins := strings.Cut(article.ReplaceAllString(first, ""), name)
	main := clause.Split(says, 2)[0]
	switch {
	case len(words) == 0:
		return "has no comment"
	case !begins || !strings.HasPrefix(article.ReplaceAllString(first, ""), name):
		return "does not begin with the name"
	case says == "" || says[0] != ' ':
		return "is no sentence that begins with the name"
	case !strings.HasSuffix(first, "."):
		return "does not end"
	case strings.Contains(first, ";"):
		return "is two sentences"
	case len(words) > wordsOfAFirstSentence:
		return "is long"
	case negation.MatchString(main):
		return "says what is not so"
	}
	return ""
}

// The comments on constants that stand in one block, and on fields, are read below their
// type: they need not name themselves.
func TestTheFirstSentenceOnEveryExportedNameSaysWhatItDoes(t *testing.T) {
	looked := 0
	for _, dir := range importable(t) {
		p, _ := readPackage(t, dir)
		see := func(name, text string) {
			looked++
			if text == "" && ofTheLanguage.MatchString(name) {
				return
			}
			if wrong := wrongWith(name[strings.LastIndex(name, ".")+1:], (&doc.Package{}).Synopsis(text)); wrong != "" {
				t.Errorf("%s.%s: the first sentence %s: %q", p.Name, name, wrong, (&doc.Package{}).Synopsis(text))
			}
			assert.NotRegexp(t, person, text, "a program is no person: the comment on %s.%s", p.Name, name)
		}
		assert.True(t, strings.HasPrefix(p.Doc, "Package "+p.Name+" "), "the package comment of %s", dir)
		assert.NotRegexp(t, person, p.Doc, "a program is no person: the package comment of %s", dir)
		for _, f := range p.Funcs {
			see(f.Name, f.Doc)
		}
		values := slices.Concat(p.Consts, p.Vars)
		for _, typ := range p.Types {
			see(typ.Name, typ.Doc)
			for _, f := range slices.Concat(typ.Funcs, typ.Methods) {
				see(strings.TrimPrefix(f.Recv+"."+f.Name, "."), f.Doc)
			}
			for _, method := range interfaceMethods(typ) {
				see(typ.Name+"."+method.Names[0].Name, method.Doc.Text()+method.Comment.Text())
			}
			values = slices.Concat(values, typ.Consts, typ.Vars)
		}
		for _, v := range values {
			for _, spec := range v.Decl.Specs {
				spec, ok := spec.(*ast.ValueSpec)
				require.True(t, ok)
				own := spec.Doc.Text()
				if strings.HasPrefix(spec.Names[0].Name, "Err") {
					assert.Regexp(t, returned, v.Doc+own, "which call returns %s.%s", p.Name, spec.Names[0].Name)
				}
				switch {
				case len(v.Decl.Specs) == 1:
					see(spec.Names[0].Name, v.Doc+own)
				case own != "":
					see(spec.Names[0].Name, own)
				default:
					looked++
					assert.NotEmpty(t, v.Doc+spec.Comment.Text(), "the comment on %s.%s", p.Name, spec.Names[0].Name)
				}
			}
		}
	}
	assert.Greater(t, looked, 500, "exported names")
}

func TestControlFirstSentencesThatNeedASecondOneAreNoticed(t *testing.T) {
	for first, want := range map[string]string{
		"":                                   "has no comment",
		"Takes the key.":                     "does not begin with the name",
		"Acquire":                            "is no sentence that begins with the name",
		"Acquires a key.":                    "does not begin with the name",
		"Acquire: a lease.":                  "is no sentence that begins with the name",
		"Acquire takes the key":              "does not end",
		"Acquire takes the key; it waits.":   "is two sentences",
		"Acquire never returns a nil lease.": "says what is not so",
		"Acquire does not poll for the key.": "says what is not so",
		"Acquire takes" + strings.Repeat(" the key and", wordsOfAFirstSentence) + " waits.": "is long",
		"Acquire takes the key, and does not poll.":                                         "",
	} {
		name := "Acquire"
		if first == "Acquires a key." {
			name = "AcquireAll"
		}
		assert.Equal(t, want, wrongWith(name, first), first)
	}
	assert.Regexp(t, person, "Acquire asks for a key. By default nobody else is told.")
	assert.NotRegexp(t, person, "Acquire asks for a key. By default no other process is told.")
}

func interfaceMethods(typ *doc.Type) (all []*ast.Field) {
	for _, spec := range typ.Decl.Specs {
		if spec, ok := spec.(*ast.TypeSpec); ok {
			if i, ok := spec.Type.(*ast.InterfaceType); ok {
				for _, m := range i.Methods.List {
					if len(m.Names) == 1 && m.Names[0].IsExported() {
						all = append(all, m)
					}
				}
			}
		}
	}
	return all
}
