package main

import (
	"context"
	"net"
	"sync"
	"time"
)

// A link delays what goes through it, as a network would: what arrives leaves later, in
// order, and any amount may be under way.
type link struct {
	oneWay time.Duration // half of what is added to a round trip
}

// newLink returns a link that adds so much to each round trip; nil if it is nothing.
func newLink(roundTrip time.Duration) *link {
	if roundTrip <= 0 {
		return nil
	}
	return &link{roundTrip / 2}
}

// DialContext connects to an address, by a pair of pumps in this process.
func (l *link) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	far, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		_ = far.Close()
		return nil, err
	}
	defer listener.Close()
	// A listener of its own for each connection: no other program knows its port. The client
	// has a real socket, with everything that drivers ask of one.
	near, err := new(net.Dialer).DialContext(ctx, "tcp", listener.Addr().String())
	if err != nil {
		_ = far.Close()
		return nil, err
	}
	inner, err := listener.Accept()
	if err != nil {
		_, _ = far.Close(), near.Close()
		return nil, err
	}
	var both sync.WaitGroup
	both.Go(func() { l.pump(far, inner) })
	both.Go(func() { l.pump(inner, far) })
	go func() { both.Wait(); _, _ = far.Close(), inner.Close() }()
	return near, nil
}

type piece struct {
	due   time.Time
	bytes []byte
}

// pump copies until either end is closed, and then closes the end to which it wrote.
func (l *link) pump(to, from net.Conn) {
	underWay := make(chan piece, 4096)
	go func() {
		defer close(underWay)
		for {
			buffer := make([]byte, 32<<10)
			n, err := from.Read(buffer)
			if n > 0 {
				underWay <- piece{time.Now().Add(l.oneWay), buffer[:n]}
			}
			if err != nil {
				return
			}
		}
	}()
	for p := range underWay {
		<-time.After(time.Until(p.due))
		if _, err := to.Write(p.bytes); err != nil {
			break
		}
	}
	_ = to.Close()
	for range underWay { // what was under way is lost
	}
}
