package order_test

import (
	"fmt"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/internal/order"
)

var place = regexp.MustCompile(`, at \S+/order_test\.go:\d+`)

func TestAConflictIsToldOnceWithBothPlaces(t *testing.T) {
	tests := map[string]struct {
		waits       [][2]string // held, wanted
		here, other string      // of the last; empty: it is in order
	}{
		"one order":                   {waits: [][2]string{{"order:1", "customer:2"}, {"order:3", "customer:1"}}},
		"both":                        {[][2]string{{"order:1", "customer:2"}, {"customer:7", "order:9"}}, "order under customer", "customer under order"},
		"both, twice":                 {waits: [][2]string{{"order:1", "customer:2"}, {"customer:7", "order:9"}, {"customer:7", "order:9"}}},
		"by a third":                  {[][2]string{{"a/1", "b/1"}, {"b/2", "c/2"}, {"c", "a/3"}}, "a under c", "b under a; c under b"},
		"no way back":                 {waits: [][2]string{{"a", "b"}, {"b", "c"}, {"a", "c"}, {"d", "a"}}},
		"keys of a class":             {waits: [][2]string{{"item:1", "item:2"}, {"item:9", "item:10"}, {"item:3", "item:2"}}},
		"the same keys of a class":    {[][2]string{{"item:1", "item:2"}, {"item:2", "item:1"}}, "item:1 under item:2", "item:2 under item:1"},
		"below a tenant":              {waits: [][2]string{{"tenant/1/order/5", "tenant/1/stock/9"}, {"tenant/1/order/5", "tenant/1/customer/7"}}},
		"below two tenants":           {[][2]string{{"tenant/1/order/5", "tenant/1/stock/9"}, {"tenant/2/stock/1", "tenant/2/order/7"}}, "tenant/*/order under tenant/*/stock", "tenant/*/stock under tenant/*/order"},
		"many":                        {[][2]string{{"a", "b"}, {"b", "c"}, {"c", "d"}, {"d", "e"}, {"e", "f"}, {"f", "a"}}, "a under f", "b under a; c under b; d under c; e under d; …"},
		"keys that begin with a sign": {[][2]string{{":1", "/2"}, {"/2", ":1"}}, ":1 under /2", "/2 under :1"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var b order.Book
			for i, w := range test.waits {
				c := b.Wait(w[0], w[1])
				switch {
				case i < len(test.waits)-1 || test.here == "":
					assert.True(t, c == nil || name == "both, twice" && i == 1, "%v: %+v", w, c)
				default:
					require.NotNil(t, c)
					assert.Regexp(t, place, c.Here)
					assert.Equal(t, test.here, place.ReplaceAllString(c.Here, ""))
					assert.Equal(t, test.other, place.ReplaceAllString(c.Other, ""))
				}
			}
		})
	}
}

func TestABookHasAnEnd(t *testing.T) {
	var b order.Book
	for i := range 999 {
		assert.Nil(t, b.Wait(fmt.Sprint("a", i), fmt.Sprint("b", i)))
	}
	assert.NotNil(t, b.Wait("b1", "a1"), "the last pair")
	assert.Nil(t, b.Wait("b2", "a2"), "one more")
}
