package mongobase

import (
	"encoding/binary"
	"math"
	"strconv"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// encoded returns an update in BSON, made without the driver's encoder, whose look-ups by
// reflection would be a good part of the computing time of a grant. An update with types other
// than the few of our commands, or with a fault, is left to the driver. (The driver encodes
// filters again in any case.)
func encoded(update bson.D) any {
	if b, ok := appendDocument(make([]byte, 0, 512), update); ok {
		return bson.Raw(b)
	}
	return update
}

func appendDocument(b []byte, d bson.D) (_ []byte, ok bool) {
	begin := len(b)
	b = append(b, 0, 0, 0, 0) // the length is filled in later
	for _, e := range d {
		if strings.IndexByte(e.Key, 0) >= 0 {
			return nil, false
		}
		at := len(b)
		b = append(b, 0) // and so is the type
		b = append(b, e.Key...)
		b = append(b, 0)
		var of bson.Type
		if b, of = appendValue(b, e.Value); of == 0 {
			return nil, false
		}
		b[at] = byte(of)
	}
	b = append(b, 0)
	binary.LittleEndian.PutUint32(b[begin:], uint32(len(b)-begin)) //nolint:gosec // no server takes 4 GB
	return b, true
}

// appendValue returns no type for a value that is left to the driver.
func appendValue(b []byte, value any) ([]byte, bson.Type) {
	switch v := value.(type) {
	case string:
		b = binary.LittleEndian.AppendUint32(b, uint32(len(v)+1)) //nolint:gosec // likewise
		return append(append(b, v...), 0), bson.TypeString
	case time.Time:
		return binary.LittleEndian.AppendUint64(b, uint64(v.UnixMilli())), bson.TypeDateTime //nolint:gosec // likewise
	case bson.DateTime:
		return binary.LittleEndian.AppendUint64(b, uint64(v)), bson.TypeDateTime //nolint:gosec // its bits
	case bson.ObjectID:
		return append(b, v[:]...), bson.TypeObjectID
	case bool:
		if v {
			return append(b, 1), bson.TypeBoolean
		}
		return append(b, 0), bson.TypeBoolean
	case int:
		if v < math.MinInt32 || v > math.MaxInt32 {
			return nil, 0
		}
		return binary.LittleEndian.AppendUint32(b, uint32(v)), bson.TypeInt32 //nolint:gosec // its bits
	case int64:
		return binary.LittleEndian.AppendUint64(b, uint64(v)), bson.TypeInt64 //nolint:gosec // its bits
	case bson.A:
		d := make(bson.D, len(v))
		for i := range v {
			d[i] = bson.E{Key: strconv.Itoa(i), Value: v[i]}
		}
		if b, ok := appendDocument(b, d); ok {
			return b, bson.TypeArray
		}
	case bson.D:
		if b, ok := appendDocument(b, v); ok {
			return b, bson.TypeEmbeddedDocument
		}
	}
	return nil, 0
}
