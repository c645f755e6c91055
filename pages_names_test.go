package mongolock_test

import (
	"go/doc"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestEveryNameThatThePagesQualifyExists(t *testing.T) {
	exported := make(map[string]map[string]bool)
	for _, dir := range importable(t) {
		p, _ := readPackage(t, dir)
		exported[p.Name] = exportedBy(p)
	}
	qualified := regexp.MustCompile(`\b([a-z]+)\.([A-Z]\w*)`)
	found := 0
	for page, text := range pages(t) {
		for _, n := range qualified.FindAllStringSubmatch(text, -1) {
			if names := exported[n[1]]; names != nil {
				found++
				assert.True(t, names[n[2]], "%s names %s", page, n[0])
			}
		}
	}
	assert.Greater(t, found, 100, "names found")
	assert.False(t, exported["schedule"]["OnMissed"], "a name of another day would pass")
}

// exportedBy returns what stands after a package's name on a page: also a method, which pages call as
// doclock.Update.
func exportedBy(p *doc.Package) map[string]bool {
	all := make(map[string]bool)
	functions := func(some []*doc.Func) {
		for _, f := range some {
			all[f.Name] = true
		}
	}
	values := func(some []*doc.Value) {
		for _, v := range some {
			for _, name := range v.Names {
				all[name] = true
			}
		}
	}
	functions(p.Funcs)
	values(append(p.Consts, p.Vars...))
	for _, typ := range p.Types {
		all[typ.Name] = true
		functions(append(typ.Funcs, typ.Methods...))
		values(append(typ.Consts, typ.Vars...))
	}
	return all
}
