package faultproxy

import (
	"bufio"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/test/mongo/wire"
)

// A rawClient is a client that speaks the wire protocol itself.
type rawClient struct {
	net.Conn
	r *bufio.Reader
	t *testing.T
}

func dial(t *testing.T, p *Proxy) rawClient {
	t.Helper()
	c, err := net.Dial("tcp", p.Addr())
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	return rawClient{c, bufio.NewReader(c), t}
}

func (c rawClient) send(raw []byte) {
	c.t.Helper()
	_, err := c.Write(raw)
	require.NoError(c.t, err)
}

func (c rawClient) receive() *wire.Message {
	c.t.Helper()
	raw, err := wire.Read(c.r, nil)
	require.NoError(c.t, err)
	m, err := wire.Parse(raw)
	require.NoError(c.t, err)
	return m
}

func TestHelloRepliesNameTheProxyAndNoCompressor(t *testing.T) {
	f := startFake(t)
	p := New(t, f.uri())
	w := dial(t, p)
	for _, raw := range [][]byte{
		query(t, bson.D{{Key: "isMaster", Value: 1}}),
		msg(t, 0, bson.D{{Key: "hello", Value: 1}}),
		msg(t, wire.FlagChecksum, bson.D{{Key: "ismaster", Value: 1}}),
	} {
		w.send(raw)
		reply := w.receive()
		for _, path := range [][]string{{"me"}, {"primary"}, {"hosts", "0"}} {
			assert.Equal(t, p.Addr(), reply.Body.Lookup(path...).StringValue(), path)
		}
		assert.True(t, reply.Body.Lookup("compression").IsZero(), "compression is offered")
	}
}

func TestEveryReplyOfAStreamIsFollowed(t *testing.T) {
	f := startFake(t)
	p := New(t, f.addr())
	p.ShiftClock(time.Hour)
	n := 0
	rule := p.On(Command("stream"), EditReply(func(d bson.D) bson.D { n++; return with(d, "n", n) }))
	w := dial(t, p)
	w.send(msg(t, wire.FlagExhaustAllowed, bson.D{{Key: "stream", Value: 1}}))
	for i := 1; i <= 3; i++ {
		reply := w.receive()
		assert.Equal(t, int32(i), reply.Body.Lookup("n").Int32())
		assert.Greater(t, time.Until(reply.Body.Lookup("localTime").Time()), 50*time.Minute, "reply %d", i)
		assert.Equal(t, i < 3, reply.Flags&wire.FlagMoreToCome != 0, "reply %d: more to come", i)
	}
	assert.Equal(t, 1, rule.Hits())
}

func TestDocumentSequencesAreSeenByRulesAndShifted(t *testing.T) {
	f := startFake(t)
	p := New(t, f.addr())
	p.ShiftClock(time.Hour)
	rule := p.On(Command("insert").Where(func(cmd bson.Raw) bool {
		return cmd.Lookup("documents", "1", "_id").StringValue() == "b" && cmd.Lookup("documents", "0", "at").Time().Equal(time.UnixMilli(1000))
	}), DelayReply(0))
	w := dial(t, p)
	w.send(insertMsg(t, wire.FlagChecksum))
	w.receive()
	assert.Equal(t, 1, rule.Hits(), "the rule did not see the documents as the client sent them")
	at := f.commands("insert")[0].Lookup("documents", "0", "at").Time()
	assert.True(t, at.Equal(time.UnixMilli(1000).Add(-time.Hour)), "the server got %v", at)
}

func TestMessagesThatAreNotUnderstoodPassUntouched(t *testing.T) {
	f := startFake(t)
	p := New(t, f.addr())
	p.ShiftClock(time.Hour)
	p.On(Command(), DropReply())
	w := dial(t, p)
	compressed := make([]byte, wire.HeaderLen+40)
	order.PutUint32(compressed, uint32(len(compressed)))
	order.PutUint32(compressed[12:], 2012)
	torn := msg(t, 0, bson.D{{Key: "insert", Value: 1}})
	torn[wire.HeaderLen+4] = 9 // a section of no known kind
	for _, raw := range [][]byte{compressed, torn} {
		w.send(raw)
		got, err := wire.Read(w.r, nil)
		require.NoError(t, err)
		assert.Equal(t, raw, got)
	}
	w.send([]byte{1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}) // an impossible length
	_, err := wire.Read(w.r, nil)
	assert.Error(t, err, "the connection is still open after a broken frame")
}

func TestAClientThatLeavesTakesItsConnectionWithIt(t *testing.T) {
	f := startFake(t)
	p := New(t, f.addr())
	w := dial(t, p)
	w.send(msg(t, 0, bson.D{{Key: "ping", Value: 1}}))
	w.receive()
	require.Equal(t, 1, p.Connections())
	_ = w.Close()
	require.Eventually(t, func() bool { return p.Connections() == 0 }, 5*time.Second, time.Millisecond)
}

func TestLabelsFollowTheCommand(t *testing.T) {
	number := bson.E{Key: "txnNumber", Value: int64(1)}
	open := bson.E{Key: "autocommit", Value: false}
	for _, c := range []struct {
		name string
		cmd  bson.D
		code int32
		want string
	}{
		{"insert", bson.D{}, CodeNotWritablePrimary, ""},
		{"insert", bson.D{number}, CodeNotWritablePrimary, "RetryableWriteError"},
		{"insert", bson.D{number}, CodeWriteConcernTimeout, ""},
		{"insert", bson.D{number, open}, CodeNotWritablePrimary, "TransientTransactionError"},
		{"commitTransaction", bson.D{number, open}, CodeNotWritablePrimary, "RetryableWriteError"},
	} {
		x := &exchange{name: c.name, command: marshal(c.cmd)}
		assert.Equal(t, c.want, x.label(c.code), "%s %v, %d", c.name, c.cmd, c.code)
	}
	assert.Equal(t, "Location4711", codeName(4711))
}

func TestATargetThatIsNotOnePlainServerIsRefused(t *testing.T) {
	for target, want := range map[string]string{
		"mongodb+srv://example.net/": "scheme",
		"mongodb://a:1,b:2/":         "one server",
		"mongodb://a:1/?tls=true":    "TLS",
		"mongodb://a:1/?ssl=true":    "TLS",
		"":                           "one server",
		"mongodb://u:secret@a:x%/":   "one host",
	} {
		p, err := Start(target)
		if !assert.Error(t, err, target) {
			_ = p.Close()
			continue
		}
		assert.ErrorContains(t, err, want, target)
		assert.NotContains(t, err.Error(), "secret", target)
	}
}

func TestURIKeepsAllButTheHost(t *testing.T) {
	p := New(t, "mongodb://u:p%40@localhost/admin?replicaSet=r")
	assert.Equal(t, "mongodb://u:p%40@"+p.Addr()+"/admin?replicaSet=r", p.URI())
	assert.Contains(t, p.DirectURI(), "directConnection=true")
	assert.Contains(t, p.DirectURI(), "replicaSet=r")
	assert.Equal(t, "localhost:27017", p.target)
}

// One round trip through the proxy, and the same without it.
func BenchmarkRoundTrip(b *testing.B) {
	f := startFake(b)
	p := New(b, f.addr())
	ping := msg(b, 0, bson.D{{Key: "ping", Value: 1}})
	for name, addr := range map[string]string{"direct": f.addr(), "proxy": p.Addr()} {
		b.Run(name, func(b *testing.B) {
			c, err := net.Dial("tcp", addr)
			require.NoError(b, err)
			defer func() { _ = c.Close() }()
			r := bufio.NewReader(c)
			var buf []byte
			for b.Loop() {
				_, err := c.Write(ping)
				require.NoError(b, err)
				buf, err = wire.Read(r, buf)
				require.NoError(b, err)
			}
		})
	}
}
