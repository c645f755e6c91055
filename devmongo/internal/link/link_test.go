package link

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// echo returns the address of a server that sends back what it is sent.
func echo(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer conn.Close()
				io.Copy(conn, conn)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		serving.Wait()
	})
	return l.Addr().String()
}

// answers reports whether a byte comes back.
func answers(t *testing.T, conn net.Conn) bool {
	t.Helper()
	require.NoError(t, conn.SetDeadline(time.Now().Add(10*time.Second)))
	if _, err := conn.Write([]byte{1}); err != nil {
		return false
	}
	_, err := io.ReadFull(conn, make([]byte, 1))
	assert.NotErrorIs(t, err, os.ErrDeadlineExceeded, "no answer, and no end either")
	return err == nil
}

func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}

// network returns a network of two members; the process of the first is pid, that of the second none of ours.
func network(t *testing.T, pid int) (n *Network, first, second string) {
	const nobody = 0
	n, err := New(func() []int { return []int{pid, nobody} })
	if errors.Is(err, errors.ErrUnsupported) {
		t.Skip(err)
	}
	require.NoError(t, err)
	t.Cleanup(n.Close)
	first, err = n.Listen(echo(t))
	require.NoError(t, err)
	second, err = n.Listen(echo(t))
	require.NoError(t, err)
	return n, first, second
}

// This process is the first member.
func TestAMemberThatIsCutOffReachesNoneButItselfUntilItRejoins(t *testing.T) {
	for name, off := range map[string]int{"itself": 0, "the other": 1} {
		t.Run(name, func(t *testing.T) {
			n, first, second := network(t, os.Getpid())
			open := dial(t, second)
			require.True(t, answers(t, open), "before the cut")

			n.CutOff(off)
			assert.False(t, answers(t, open), "an open connection")
			assert.False(t, answers(t, dial(t, second)), "a new one")
			assert.True(t, answers(t, dial(t, first)), "one to itself")

			n.Rejoin(off)
			assert.True(t, answers(t, dial(t, second)), "after the cut")
		})
	}
}

// This process is no member.
func TestClientsReachEveryMemberMeanwhile(t *testing.T) {
	n, first, second := network(t, 0)
	before := dial(t, first)
	n.CutOff(0)
	assert.True(t, answers(t, before))
	assert.True(t, answers(t, dial(t, first)))
	assert.True(t, answers(t, dial(t, second)))
}
