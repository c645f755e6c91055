package servers

import (
	"context"
	"encoding/binary"
	"io"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// readOp reads an OP_MSG, or the OP_QUERY of a first hello.
func readOp(r io.Reader) (id int32, query bool, body bson.Raw, err error) {
	head := make([]byte, 16)
	if _, err := io.ReadFull(r, head); err != nil {
		return 0, false, nil, err
	}
	rest := make([]byte, int(binary.LittleEndian.Uint32(head))-len(head))
	if _, err := io.ReadFull(r, rest); err != nil {
		return 0, false, nil, err
	}
	query = binary.LittleEndian.Uint32(head[12:]) == 2004
	if query {
		end := slices.Index(rest[4:], 0)
		rest = rest[4+end+1+8:]
	} else {
		rest = rest[5:]
	}
	size := binary.LittleEndian.Uint32(rest)
	return int32(binary.LittleEndian.Uint32(head[4:])), query, bson.Raw(rest[:size]), nil
}

func opMsg(to int32, body bson.Raw) []byte { return message(to, 2013, make([]byte, 5), body) }
func opReply(to int32, body bson.Raw) []byte {
	return message(to, 1, append(make([]byte, 16), 1, 0, 0, 0), body)
}

func message(to, kind int32, before []byte, body bson.Raw) []byte {
	m := make([]byte, 16, 16+len(before)+len(body))
	binary.LittleEndian.PutUint32(m, uint32(cap(m)))
	binary.LittleEndian.PutUint32(m[4:], 1)
	binary.LittleEndian.PutUint32(m[8:], uint32(to))
	binary.LittleEndian.PutUint32(m[12:], uint32(kind))
	return append(append(m, before...), body...)
}

// helloOf asks one member, past the others.
func helloOf(ctx context.Context, host string) (bson.Raw, error) {
	c, err := mongo.Connect(options.Client().ApplyURI("mongodb://" + host + "/?directConnection=true").
		SetServerSelectionTimeout(500 * time.Millisecond).SetTimeout(500 * time.Millisecond))
	if err != nil {
		return nil, err
	}
	defer disconnect(c)
	return c.Database("admin").RunCommand(ctx, bson.D{{Key: "isMaster", Value: 1}}).Raw()
}
