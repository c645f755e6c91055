package faultproxy

import (
	"bufio"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/test/mongo/wire"
)

// A fake is a server with just enough commands for a driver: hello, insert and find by _id.
// It recognises a retried write.
type fake struct {
	listener net.Listener
	ids      atomic.Int32
	running  sync.WaitGroup

	mu      sync.Mutex
	conns   []net.Conn
	docs    map[string]bson.Raw // by the JSON of _id
	written map[string]bson.D   // replies, by session and txnNumber
	seen    []bson.Raw
}

func startFake(t testing.TB) *fake {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	f := &fake{listener: listener, docs: map[string]bson.Raw{}, written: map[string]bson.D{}}
	f.running.Go(f.accept)
	t.Cleanup(func() {
		_ = listener.Close()
		f.mu.Lock()
		for _, c := range f.conns {
			_ = c.Close()
		}
		f.mu.Unlock()
		f.running.Wait()
	})
	return f
}

func (f *fake) addr() string { return f.listener.Addr().String() }
func (f *fake) uri() string  { return "mongodb://" + f.addr() + "/?replicaSet=fake" }

// commands returns the commands of one name that the fake has received.
func (f *fake) commands(name string) (seen []bson.Raw) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, cmd := range f.seen {
		if cmd.Index(0).Key() == name {
			seen = append(seen, cmd)
		}
	}
	return seen
}

func (f *fake) accept() {
	for {
		c, err := f.listener.Accept()
		if err != nil {
			return
		}
		f.mu.Lock()
		f.conns = append(f.conns, c)
		f.mu.Unlock()
		f.running.Go(func() {
			defer func() { _ = c.Close() }()
			f.serve(c)
		})
	}
}

func (f *fake) serve(c net.Conn) {
	r := bufio.NewReader(c)
	for {
		raw, err := wire.Read(r, nil)
		if err != nil {
			return
		}
		m, err := wire.Parse(raw)
		if err != nil || m.Body == nil {
			if _, err := c.Write(raw); err != nil { // an echo shows what came through
				return
			}
			continue
		}
		cmd, err := m.Document()
		if err != nil {
			return
		}
		replies := f.handle(m.Command(), cmd)
		if m.Flags&wire.FlagMoreToCome != 0 {
			continue
		}
		to := m
		for i, reply := range replies {
			answer := to.Answer(f.ids.Add(1)+1000, marshal(reply))
			if i < len(replies)-1 {
				answer.SetFlags(answer.Flags | wire.FlagMoreToCome)
			}
			if _, err := c.Write(answer.Raw); err != nil {
				return
			}
			to = answer
		}
	}
}

func (f *fake) handle(name string, cmd bson.Raw) []bson.D {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen = append(f.seen, cmd)
	ok := bson.D{{Key: "ok", Value: 1.0}}
	switch name {
	case "stream": // a reply with two more to come
		return []bson.D{f.hello(), f.hello(), f.hello()}
	case "insert":
		return []bson.D{f.insert(cmd)}
	case "find":
		batch := bson.A{}
		if doc, ok := f.docs[cmd.Lookup("filter", "_id").String()]; ok {
			batch = append(batch, doc)
		}
		return []bson.D{append(ok, bson.E{Key: "cursor", Value: bson.D{
			{Key: "id", Value: int64(0)}, {Key: "ns", Value: "db.things"}, {Key: "firstBatch", Value: batch},
		}})}
	}
	if isHello(name) {
		return []bson.D{f.hello()}
	}
	return []bson.D{ok}
}

func (f *fake) insert(cmd bson.Raw) bson.D {
	txn := cmd.Lookup("lsid").String() + cmd.Lookup("txnNumber").String()
	if reply, ok := f.written[txn]; ok && !cmd.Lookup("txnNumber").IsZero() {
		return reply
	}
	reply := bson.D{
		{Key: "n", Value: 1}, {Key: "ok", Value: 1.0},
		{Key: "operationTime", Value: bson.Timestamp{T: 1_700_000_000, I: 1}},
	}
	doc := cmd.Lookup("documents", "0").Document()
	id := doc.Lookup("_id").String()
	if _, ok := f.docs[id]; ok {
		return bson.D{{Key: "n", Value: 0}, {Key: "ok", Value: 1.0}, {Key: "writeErrors", Value: bson.A{
			bson.D{{Key: "index", Value: 0}, {Key: "code", Value: 11000}, {Key: "errmsg", Value: "E11000"}},
		}}}
	}
	f.docs[id] = doc
	f.written[txn] = reply
	return reply
}

func (f *fake) hello() bson.D {
	return bson.D{
		{Key: "isWritablePrimary", Value: true}, {Key: "ismaster", Value: true}, {Key: "helloOk", Value: true},
		{Key: "setName", Value: "fake"}, {Key: "me", Value: f.addr()}, {Key: "primary", Value: f.addr()},
		{Key: "hosts", Value: bson.A{f.addr()}}, {Key: "compression", Value: bson.A{"zlib"}},
		{Key: "localTime", Value: time.Now()}, {Key: "logicalSessionTimeoutMinutes", Value: 30},
		{Key: "maxBsonObjectSize", Value: 16 << 20}, {Key: "maxMessageSizeBytes", Value: 48_000_000},
		{Key: "maxWriteBatchSize", Value: 100_000}, {Key: "minWireVersion", Value: 0}, {Key: "maxWireVersion", Value: 25},
		{Key: "ok", Value: 1.0},
	}
}
