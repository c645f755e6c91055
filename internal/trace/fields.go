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
