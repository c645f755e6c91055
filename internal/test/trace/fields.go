package trace

import (
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

func field(d bson.D, name string) any {
	for _, e := range d {
		if e.Key == name {
			return e.Value
		}
	}
	return nil
}

func holdersOf(doc bson.D) bson.D {
	holders, _ := field(doc, "holders").(bson.D)
	return holders
}

// holderPath splits "holders.<id>.<field>".
func holderPath(path string) (id, name string, is bool) {
	rest, is := strings.CutPrefix(path, "holders.")
	id, name, _ = strings.Cut(rest, ".")
	return id, name, is
}

func number(v any) int64 {
	switch n := v.(type) {
	case int32:
		return int64(n)
	case int64:
		return n
	}
	return 0
}

// documents are those of a list.
func documents(list any) (all []bson.D) {
	a, _ := list.(bson.A)
	for _, v := range a {
		d, _ := v.(bson.D)
		all = append(all, d)
	}
	return all
}

// succeeded reports whether a reply says that a command did all that it was to do, for as many members as it asked.
func succeeded(reply bson.D) bool {
	ok, _ := field(reply, "ok").(float64)
	return ok == 1 && field(reply, "writeConcernError") == nil && field(reply, "writeErrors") == nil
}
