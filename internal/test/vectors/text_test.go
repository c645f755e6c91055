package vectors

import (
	"encoding/json"
	"fmt"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

const lineMost = 150

// text returns a value as Extended JSON, in which every number has its type: a small one without
// more is an int32. What fits stands on one line.
func text(v any, indent string) string {
	if short := onOneLine(v); len(short)+len(indent) <= lineMost {
		return short
	}
	deeper := indent + "  "
	var parts []string
	brackets := "{}"
	switch v := v.(type) {
	case bson.D:
		for _, e := range v {
			parts = append(parts, deeper+quoted(e.Key)+": "+text(e.Value, deeper))
		}
	case bson.A:
		brackets = "[]"
		for _, one := range v {
			parts = append(parts, deeper+text(one, deeper))
		}
	default:
		return onOneLine(v)
	}
	return brackets[:1] + "\n" + strings.Join(parts, ",\n") + "\n" + indent + brackets[1:]
}

func onOneLine(v any) string {
	var parts []string
	switch v := v.(type) {
	case bson.D:
		for _, e := range v {
			parts = append(parts, quoted(e.Key)+": "+onOneLine(e.Value))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	case bson.A:
		for _, one := range v {
			parts = append(parts, onOneLine(one))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case nil:
		return "null"
	case string:
		return quoted(v)
	case bool, int32:
		return fmt.Sprint(v)
	case int64:
		return fmt.Sprintf(`{"$numberLong": "%d"}`, v)
	case bson.DateTime:
		return `{"$date": "` + v.Time().UTC().Format("2006-01-02T15:04:05.999Z07:00") + `"}`
	case bson.ObjectID:
		return `{"$oid": "` + v.Hex() + `"}`
	}
	panic(fmt.Sprintf("the vectors have no %T", v))
}

func quoted(s string) string {
	text, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(text)
}
