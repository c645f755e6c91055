package doclock

import (
	"bytes"
	"math"
	"math/big"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// same reports whether the server treats two values as equal: numbers of its four types are
// equal if their values are, also within documents and arrays. The order of a document's fields
// counts.
func same(a, b bson.RawValue) bool {
	a, b = normal(a), normal(b)
	return a.Type == b.Type && bytes.Equal(a.Value, b.Value)
}

// normal returns the form that a value shares with all values that the server treats as equal
// to it: each number has the smallest type that holds it exactly.
func normal(v bson.RawValue) bson.RawValue {
	switch v.Type {
	case bson.TypeInt64, bson.TypeDouble, bson.TypeDecimal128:
		return normalNumber(v)
	case bson.TypeEmbeddedDocument, bson.TypeArray:
		elements, err := bson.Raw(v.Value).Elements()
		if err != nil {
			return v
		}
		fields := make(bson.D, len(elements))
		for i, e := range elements {
			fields[i] = bson.E{Key: e.Key(), Value: normal(e.Value())}
		}
		raw, err := bson.Marshal(fields)
		if err != nil {
			return v
		}
		return bson.RawValue{Type: v.Type, Value: raw}
	}
	return v
}

func normalNumber(v bson.RawValue) bson.RawValue {
	r := rational(v)
	switch f, exact := float(r); {
	case r == nil:
		return v // not finite
	case r.IsInt() && r.Num().IsInt64() && fits32(r.Num().Int64()):
		return asValue(int32(r.Num().Int64()))
	case r.IsInt() && r.Num().IsInt64():
		return asValue(r.Num().Int64())
	case exact:
		return asValue(f)
	}
	return v
}

// rational returns the exact value of a number, or nil if it is infinite or not a number.
func rational(v bson.RawValue) *big.Rat {
	switch v.Type {
	case bson.TypeInt64:
		return new(big.Rat).SetInt64(v.Int64())
	case bson.TypeDouble:
		return new(big.Rat).SetFloat64(v.Double()) // nil if it is not finite
	}
	digits, exponent, err := v.Decimal128().BigInt()
	if err != nil {
		return nil
	}
	shift := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(max(exponent, -exponent))), nil)
	if exponent < 0 {
		return new(big.Rat).SetFrac(digits, shift)
	}
	return new(big.Rat).SetInt(digits.Mul(digits, shift))
}

func float(r *big.Rat) (f float64, exact bool) {
	if r == nil {
		return 0, false
	}
	return r.Float64()
}

func fits32(n int64) bool { return n >= math.MinInt32 && n <= math.MaxInt32 }

// asValue returns a value in BSON, or the zero value if BSON cannot have it.
func asValue(v any) bson.RawValue {
	if raw, ok := v.(bson.RawValue); ok {
		return raw
	}
	kind, raw, _ := bson.MarshalValue(v)
	return bson.RawValue{Type: kind, Value: raw}
}

// equal reports whether two values differ at most in the order of fields of documents within
// them: a Go map has no order, and is encoded in another order each time.
func equal(a, b bson.RawValue) bool {
	if a.Type != b.Type {
		return false
	}
	if bytes.Equal(a.Value, b.Value) {
		return true
	}
	if a.Type != bson.TypeEmbeddedDocument && a.Type != bson.TypeArray {
		return false
	}
	as, one := fieldsByName(a)
	bs, two := fieldsByName(b)
	if !one || !two || len(as) != len(bs) {
		return false
	}
	for name, x := range as {
		if y, ok := bs[name]; !ok || !equal(x, y) {
			return false
		}
	}
	return true
}

// fieldsByName returns the fields of a document, or the elements of an array by their indexes.
// It fails if a name occurs twice.
func fieldsByName(v bson.RawValue) (map[string]bson.RawValue, bool) {
	elements, err := bson.Raw(v.Value).Elements()
	if err != nil {
		return nil, false
	}
	fields := make(map[string]bson.RawValue, len(elements))
	for _, e := range elements {
		fields[e.Key()] = e.Value()
	}
	return fields, len(fields) == len(elements)
}

// addressable reports whether an update can name a field by its path.
func addressable(name string) bool {
	return name != "" && !strings.HasPrefix(name, "$") && !strings.Contains(name, ".")
}
