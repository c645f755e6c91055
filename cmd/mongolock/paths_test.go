package main

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/mongolock/mongolock/pathlock"
)

func TestWhatIsInTheWayOfAPathIsSaidInALine(t *testing.T) {
	writer := pathlock.Lock{Path: "/src", Mode: pathlock.Exclusive, Depth: pathlock.Infinity, Owner: []byte("host/7")}
	for want, e := range map[string]pathlock.ConflictError{
		"": {},
		`: /src, exclusive, depth infinity, by host/7`:             {Affecting: pathlock.Affecting{Parents: []pathlock.Lock{writer}}},
		`: /src, exclusive, depth infinity, by host/7, and 3 more`: {Affecting: pathlock.Affecting{Parents: []pathlock.Lock{writer, writer}}, More: 2},
		`: an exclusive lock of /src is waited for`:                {Waiting: []pathlock.Request{{Path: "/src"}}},
	} {
		assert.Equal(t, want, inTheWay(&e))
	}
}
