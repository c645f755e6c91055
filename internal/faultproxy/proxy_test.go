package faultproxy

import (
	"bufio"
	"bytes"
	"net"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// A wire is a client that speaks the protocol by hand.
type wire struct {
	net.Conn
	r *bufio.Reader
	t *testing.T
}

func dial(t *testing.T, p *Proxy) wire {
	t.Helper()
	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	return wire{c, bufio.NewReader(c), t}
}

func (w wire) send(raw []byte) {
	w.t.Helper()
	if _, err := w.Write(raw); err != nil {
		w.t.Fatal(err)
	}
}

func (w wire) receive() *message {
	w.t.Helper()
	raw, err := readMessage(w.r, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	m, err := parseMessage(raw)
	if err != nil {
		w.t.Fatal(err)
	}
	return m
}

func TestHelloRepliesNameTheProxyAndNoCompressor(t *testing.T) {
	f := startFake(t)
	p := New(t, f.uri())
	w := dial(t, p)
	for _, raw := range [][]byte{
		query(t, bson.D{{Key: "isMaster", Value: 1}}),
		msg(t, 0, bson.D{{Key: "hello", Value: 1}}),
		msg(t, flagChecksum, bson.D{{Key: "ismaster", Value: 1}}),
	} {
		w.send(raw)
		reply := w.receive()
		for _, path := range [][]string{{"me"}, {"primary"}, {"hosts", "0"}} {
			if got := reply.body.Lookup(path...).StringValue(); got != p.Addr() {
				t.Errorf("%v: %s", path, got)
			}
		}
		if !reply.body.Lookup("compression").IsZero() {
			t.Error("compression is on offer")
		}
	}
}

func TestEveryReplyOfAStreamIsFollowed(t *testing.T) {
	f := startFake(t)
	p := New(t, f.addr())
	p.ShiftClock(time.Hour)
	n := 0
	rule := p.On(Command("stream"), EditReply(func(d bson.D) bson.D { n++; return with(d, "n", n) }))
	w := dial(t, p)
	w.send(msg(t, flagExhaustAllowed, bson.D{{Key: "stream", Value: 1}}))
	for i := 1; i <= 3; i++ {
		reply := w.receive()
		if got := reply.body.Lookup("n").Int32(); got != int32(i) {
			t.Errorf("reply %d says %d", i, got)
		}
		if at := reply.body.Lookup("localTime").Time(); time.Until(at) < 50*time.Minute {
			t.Errorf("reply %d: %v", i, at)
		}
		if more := reply.flags&flagMoreToCome != 0; more != (i < 3) {
			t.Errorf("reply %d: more to come: %v", i, more)
		}
	}
	if rule.Hits() != 1 {
		t.Errorf("%d hits for one command", rule.Hits())
	}
}

func TestDocumentSequencesAreSeenByRulesAndShifted(t *testing.T) {
	f := startFake(t)
	p := New(t, f.addr())
	p.ShiftClock(time.Hour)
	rule := p.On(Command("insert").Where(func(cmd bson.Raw) bool {
		return cmd.Lookup("documents", "1", "_id").StringValue() == "b" && cmd.Lookup("documents", "0", "at").Time().Equal(time.UnixMilli(1000))
	}), DelayReply(0))
	w := dial(t, p)
	w.send(insertMsg(t, flagChecksum))
	w.receive()
	if rule.Hits() != 1 {
		t.Error("the rule did not see the documents as the client sent them")
	}
	if at := f.commands("insert")[0].Lookup("documents", "0", "at").Time(); !at.Equal(time.UnixMilli(1000).Add(-time.Hour)) {
		t.Errorf("the server got %v", at)
	}
}

func TestWhatIsNotUnderstoodPassesUntouched(t *testing.T) {
	f := startFake(t)
	p := New(t, f.addr())
	p.ShiftClock(time.Hour)
	p.On(Command(), DropReply())
	w := dial(t, p)
	compressed := make([]byte, headerLen+40)
	order.PutUint32(compressed, uint32(len(compressed)))
	order.PutUint32(compressed[12:], 2012)
	torn := msg(t, 0, bson.D{{Key: "insert", Value: 1}})
	torn[headerLen+4] = 9 // a section of no known kind
	for _, raw := range [][]byte{compressed, torn} {
		w.send(raw)
		got, err := readMessage(w.r, nil)
		if err != nil || !bytes.Equal(got, raw) {
			t.Errorf("%x came back as %x, %v", raw, got, err)
		}
	}
	w.send([]byte{1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}) // a length that cannot be
	if _, err := readMessage(w.r, nil); err == nil {
		t.Error("the connection is still good after a broken frame")
	}
}

func TestAClientThatLeavesTakesItsConnectionWithIt(t *testing.T) {
	f := startFake(t)
	p := New(t, f.addr())
	w := dial(t, p)
	w.send(msg(t, 0, bson.D{{Key: "ping", Value: 1}}))
	w.receive()
	if n := p.Connections(); n != 1 {
		t.Fatalf("%d connections", n)
	}
	_ = w.Close()
	for begin := time.Now(); p.Connections() > 0; time.Sleep(time.Millisecond) {
		if time.Since(begin) > 5*time.Second {
			t.Fatal("it stays")
		}
	}
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
		if got := x.label(c.code); got != c.want {
			t.Errorf("%s %v, %d: %q, want %q", c.name, c.cmd, c.code, got, c.want)
		}
	}
	if got := codeName(4711); got != "Location4711" {
		t.Error(got)
	}
}

func TestTargetsThatCannotBe(t *testing.T) {
	for target, want := range map[string]string{
		"mongodb+srv://example.net/": "scheme",
		"mongodb://a:1,b:2/":         "one server",
		"mongodb://a:1/?tls=true":    "TLS",
		"mongodb://a:1/?ssl=true":    "TLS",
		"":                           "one server",
		"mongodb://u:secret@a:x%/":   "one host",
	} {
		p, err := Start(target)
		if err == nil {
			_ = p.Close()
			t.Errorf("%q is taken", target)
			continue
		}
		if !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", target, err)
		}
	}
}

func TestURIKeepsAllButTheHost(t *testing.T) {
	p := New(t, "mongodb://u:p%40@localhost/admin?replicaSet=r")
	if got, want := p.URI(), "mongodb://u:p%40@"+p.Addr()+"/admin?replicaSet=r"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got := p.DirectURI(); !strings.Contains(got, "directConnection=true") || !strings.Contains(got, "replicaSet=r") {
		t.Error(got)
	}
	if p.Target() != "localhost:27017" {
		t.Error(p.Target())
	}
}

// One round trip through the proxy, and the same without it.
func BenchmarkRoundTrip(b *testing.B) {
	f := startFake(b)
	p := New(b, f.addr())
	ping := msg(b, 0, bson.D{{Key: "ping", Value: 1}})
	for name, addr := range map[string]string{"direct": f.addr(), "proxy": p.Addr()} {
		b.Run(name, func(b *testing.B) {
			c, err := net.Dial("tcp", addr)
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = c.Close() }()
			r := bufio.NewReader(c)
			var buf []byte
			for b.Loop() {
				if _, err := c.Write(ping); err != nil {
					b.Fatal(err)
				}
				if buf, err = readMessage(r, buf); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
