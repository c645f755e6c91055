package gate

import (
	"context"
	"encoding/binary"
	"io"
	"log/slog"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
)

func TestOneCommandAtATimePassesOverAllConnections(t *testing.T) {
	s := newServer(t)
	g := open(t, s)
	const clients, rounds = 8, 50
	done := make(chan error, clients)
	for range clients {
		go func() {
			conn, err := net.Dial("tcp", g.Addr())
			if err != nil {
				done <- err
				return
			}
			defer conn.Close()
			for range rounds {
				if err = roundTrip(conn, msg(0, "update")); err != nil {
					break
				}
			}
			done <- err
		}()
	}
	for range clients {
		require.NoError(t, <-done)
	}
	if most := s.most.Load(); most != 1 {
		t.Errorf("%d commands were under way at once", most)
	}
	if seen := s.seen.Load(); seen != clients*rounds {
		t.Errorf("the server saw %d commands, want %d", seen, clients*rounds)
	}
}

func TestCommandsThatWaitByDesignBypassTheGate(t *testing.T) {
	for _, waiting := range []message{msg(0, "hello"), msg(flagExhaustable, "isMaster"), query("ismaster")} {
		t.Run(waiting.command(), func(t *testing.T) {
			s := newServer(t)
			g := open(t, s)
			held := dial(t, g)
			release := s.hold(waiting.command())
			send(t, held, waiting)

			assert.NoError(t, roundTrip(dial(t, g), msg(0, "insert")))
			release()
			if _, err := readMessage(held); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestACommandHoldsTheGateUntilItsAnswerEvenIfItsClientHasGone(t *testing.T) {
	s := newServer(t)
	g := open(t, s)
	leaving := dial(t, g)
	release := s.hold("update")
	send(t, leaving, msg(0, "update"))
	s.await(t, 1)
	leaving.Close()

	next := dial(t, g)
	send(t, next, msg(0, "insert"))
	time.Sleep(50 * time.Millisecond) // real: an absence; a gate that let it pass would have by now
	if seen := s.seen.Load(); seen != 1 {
		t.Errorf("the server saw %d commands while the first was under way", seen)
	}
	release()
	if _, err := readMessage(next); err != nil {
		t.Error(err)
	}
}

func TestAnUnacknowledgedWriteHoldsTheGateAndItsAnswerIsDropped(t *testing.T) {
	s := newServer(t)
	g := open(t, s)
	conn := dial(t, g)
	release := s.hold("insert")
	send(t, conn, msg(flagMoreToCome, "insert"))
	s.await(t, 1)
	send(t, conn, msg(0, "find"))
	time.Sleep(50 * time.Millisecond) // real: an absence; a gate that let it pass would have by now
	if seen := s.seen.Load(); seen != 1 {
		t.Errorf("the server saw %d commands while the unacknowledged one was under way", seen)
	}
	release()
	answer, err := readMessage(conn)
	require.NoError(t, err)
	if name := answer.command(); name != "find" {
		t.Errorf("the client got the answer to %q", name)
	}
}

func TestAMessageThatTheGateCannotReadWaitsItsTurn(t *testing.T) {
	compressed := msg(0, "hello")
	binary.LittleEndian.PutUint32(compressed[12:], 2012)
	sequenceFirst := msg(0, "hello")
	sequenceFirst[headerSize+4] = 1
	for name, m := range map[string]message{
		"compressed":     compressed,
		"sequence first": sequenceFirst,
		"empty":          header(opMsg, nil),
		"cut short":      header(opMsg, make([]byte, 7)),
		"query cut":      header(opQuery, make([]byte, 9)),
	} {
		if m.waitsByDesign() || m.command() != "" {
			t.Errorf("%s: read as %q", name, m.command())
		}
	}
}

func TestAMessageOfAnInvalidSizeEndsTheConnection(t *testing.T) {
	g := open(t, newServer(t))
	for _, size := range []uint32{0, headerSize - 1, maxSize + 1, 1 << 31} {
		conn := dial(t, g)
		m := header(opMsg, nil)
		binary.LittleEndian.PutUint32(m, size)
		send(t, conn, m)
		if _, err := conn.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("size %d: %v", size, err)
		}
	}
}

func TestCloseEndsWaitingConnections(t *testing.T) {
	s := newServer(t)
	g := open(t, s)
	held, queued := dial(t, g), dial(t, g)
	defer s.hold("update")()
	send(t, held, msg(0, "update"))
	s.await(t, 1)
	send(t, queued, msg(0, "update"))
	assert.NoError(t, g.Close())
	for _, conn := range []net.Conn{held, queued} {
		if _, err := readMessage(conn); err == nil {
			t.Error("a closed gate answered")
		}
	}
}

// A server answers every message with the message itself, and counts the messages.
type server struct {
	net.Listener
	seen, now, most atomic.Int64
	held            atomic.Value // of hold
}

type hold struct {
	command string
	until   chan struct{}
}

func newServer(t *testing.T) *server {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	s := &server{Listener: l}
	s.held.Store(hold{})
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go s.answer(conn)
		}
	}()
	return s
}

func (s *server) answer(conn net.Conn) {
	defer conn.Close()
	for {
		m, err := readMessage(conn)
		if err != nil {
			return
		}
		s.seen.Add(1)
		now := s.now.Add(1)
		for most := s.most.Load(); now > most && !s.most.CompareAndSwap(most, now); most = s.most.Load() {
		}
		if h := s.held.Load().(hold); h.until != nil && h.command == m.command() {
			<-h.until
		}
		s.now.Add(-1)
		if _, err := conn.Write(m); err != nil {
			return
		}
	}
}

// hold delays the answers to a command until release is called.
func (s *server) hold(command string) (release func()) {
	until := make(chan struct{})
	s.held.Store(hold{command, until})
	return func() { close(until) }
}

func (s *server) await(t *testing.T, n int64) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); s.seen.Load() < n; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the server saw %d commands, want %d", s.seen.Load(), n)
		}
	}
}

func open(t *testing.T, s *server) *Gate {
	g, err := Listen("127.0.0.1:0", s.Addr().String(), slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	t.Cleanup(func() { g.Close() })
	return g
}

func dial(t *testing.T, g *Gate) net.Conn {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", g.Addr())
	require.NoError(t, err)
	conn.SetDeadline(time.Now().Add(10 * time.Second))
	t.Cleanup(func() { conn.Close() })
	return conn
}

func send(t *testing.T, conn net.Conn, m message) {
	t.Helper()
	if _, err := conn.Write(m); err != nil {
		t.Fatal(err)
	}
}

func roundTrip(conn net.Conn, m message) error {
	if _, err := conn.Write(m); err != nil {
		return err
	}
	_, err := readMessage(conn)
	return err
}

func msg(flags uint32, command string) message {
	doc, err := bson.Marshal(bson.D{{Key: command, Value: 1}, {Key: "$db", Value: "admin"}})
	if err != nil {
		panic(err)
	}
	body := binary.LittleEndian.AppendUint32(nil, flags)
	return header(opMsg, append(append(body, 0), doc...))
}

func query(command string) message {
	doc, err := bson.Marshal(bson.D{{Key: command, Value: 1}})
	if err != nil {
		panic(err)
	}
	body := append(make([]byte, 4), "admin.$cmd\x00"...)
	body = append(body, make([]byte, 8)...)
	return header(opQuery, append(body, doc...))
}

func header(kind uint32, body []byte) message {
	m := make(message, headerSize, headerSize+len(body))
	binary.LittleEndian.PutUint32(m, uint32(headerSize+len(body)))
	binary.LittleEndian.PutUint32(m[12:], kind)
	return append(m, body...)
}
