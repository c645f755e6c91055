package doclock

import (
	"fmt"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// claimIndex returns the keys of a claim's index. The fields compared for equality come first,
// the mark of completion among them: so completed documents are never visited. Then come the
// fields of the sort, then those of ranges: so documents that are held or put off are skipped
// within the index.
func (s *docStore) claimIndex(filter, sort any) (bson.D, error) {
	f, err := marshal(filter)
	if err != nil {
		return nil, fmt.Errorf("doclock: ensure index: the filter: %w", err)
	}
	elements, err := f.Elements()
	if err != nil {
		return nil, fmt.Errorf("doclock: ensure index: the filter: %w", err)
	}
	var keys, ranges bson.D
	add := func(to *bson.D, name string, direction any) {
		has := func(e bson.E) bool { return e.Key == name }
		if !slices.ContainsFunc(keys, has) && !slices.ContainsFunc(*to, has) {
			*to = append(*to, bson.E{Key: name, Value: direction})
		}
	}
	for _, e := range elements {
		switch {
		case strings.HasPrefix(e.Key(), "$"): // $or and its like need indexes of their own
		case isValue(e.Value()):
			add(&keys, e.Key(), 1)
		default:
			add(&ranges, e.Key(), 1)
		}
	}
	add(&keys, s.path(fieldDone), 1)
	if sort != nil {
		order, err := marshal(sort)
		if err != nil {
			return nil, fmt.Errorf("doclock: ensure index: the sort: %w", err)
		}
		elements, err := order.Elements()
		if err != nil {
			return nil, fmt.Errorf("doclock: ensure index: the sort: %w", err)
		}
		for _, e := range elements {
			if !e.Value().IsNumber() {
				return nil, fmt.Errorf("doclock: ensure index: the sort's %s is %s: must be 1 or -1", e.Key(), clip(e.Value()))
			}
			add(&keys, e.Key(), e.Value())
		}
	}
	for _, r := range ranges {
		add(&keys, r.Key, r.Value)
	}
	add(&keys, s.path(fieldReadyAt), 1)
	add(&keys, s.path(fieldExpireAt), 1)
	return keys, nil
}

// indexName names an index after its fields. Old servers limit its length.
func indexName(keys bson.D) string {
	var b strings.Builder
	b.WriteString("doclock")
	for _, k := range keys {
		b.WriteString("_" + k.Key)
		if v, ok := k.Value.(bson.RawValue); ok {
			if n, _ := number(v); n < 0 {
				b.WriteString("_desc")
			}
		}
	}
	return b.String()
}
