// Package link stands between the members of a set, so that one can be cut off from the others while
// clients reach them all.
//
// Each member has an address of its own here, by which clients and the other members know it; connections
// are passed on to its port. All members run on one machine. Which of them has opened a connection is read
// from the system's tables, so nothing is asked of the servers.
package link

import (
	"io"
	"net"
	"sync"
)

// A Network is the links to all members of a set.
type Network struct {
	owner func(client net.Conn, pids []int) int // index of the process that opened it, or -1

	mu        sync.Mutex // protects the rest
	pids      func() []int
	listeners []net.Listener
	off       map[int]bool
	open      map[*connection]bool
	closed    bool
	running   sync.WaitGroup
}

// A connection is one that is passed on.
type connection struct {
	from, to       int // members; from is -1 for a client
	client, server net.Conn
}

func (c *connection) close() {
	c.client.Close()
	c.server.Close()
}

// New returns a network of members whose processes pids returns, in order and zero for one that does not
// run. It fails where the system does not tell whose a connection is.
func New(pids func() []int) (*Network, error) {
	if err := canTell(); err != nil {
		return nil, err
	}
	return &Network{owner: owner, pids: pids, off: map[int]bool{}, open: map[*connection]bool{}}, nil
}

// Listen opens the address of the next member, which listens at target.
func (n *Network) Listen(target string) (addr string, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	to := len(n.listeners)
	n.listeners = append(n.listeners, l)
	n.running.Go(func() { n.accept(l, to, target) })
	return l.Addr().String(), nil
}

// CutOff ends the connections between a member and the others, and lets no new ones through.
func (n *Network) CutOff(member int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.off[member] = true
	for c := range n.open {
		if n.severed(c.from, c.to) {
			c.close()
		}
	}
}

// Rejoin lets connections of a member through again.
func (n *Network) Rejoin(member int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.off, member)
}

// Close ends all links and waits for them.
func (n *Network) Close() {
	n.mu.Lock()
	n.closed = true
	for _, l := range n.listeners {
		l.Close()
	}
	for c := range n.open {
		c.close()
	}
	n.mu.Unlock()
	n.running.Wait()
}

// severed is called with mu held. A member always reaches itself: it looks itself up when it starts.
func (n *Network) severed(from, to int) bool {
	return n.closed || from >= 0 && from != to && (n.off[from] || n.off[to])
}

func (n *Network) accept(l net.Listener, to int, target string) {
	for {
		client, err := l.Accept()
		if err != nil {
			return // closed
		}
		n.running.Go(func() { n.serve(client, to, target) })
	}
}

func (n *Network) serve(client net.Conn, to int, target string) {
	defer client.Close()
	from := n.owner(client, n.pids())
	server, err := net.Dial("tcp", target)
	if err != nil {
		return // the member does not run
	}
	c := &connection{from: from, to: to, client: client, server: server}
	defer c.close()
	n.mu.Lock()
	severed := n.severed(from, to)
	if !severed {
		n.open[c] = true
	}
	n.mu.Unlock()
	if severed {
		return
	}
	defer func() {
		n.mu.Lock()
		delete(n.open, c)
		n.mu.Unlock()
	}()
	var back sync.WaitGroup
	back.Go(func() {
		io.Copy(client, server)
		c.close()
	})
	io.Copy(server, client)
	c.close()
	back.Wait()
}
