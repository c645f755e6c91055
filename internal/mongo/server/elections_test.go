package server

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// This machine slept unnoticed, and the next answer took so long that it hides the jump from
// the newest sample. A date written by the clock of the last hello is not believed.
func TestAClockThatIsNotBelievedIsAskedForAgain(t *testing.T) {
	for name, elections := range map[string]bool{"a replica set": true, "a server by itself": false} {
		t.Run(name, func(t *testing.T) {
			var at Moment = 1
			clock := NewClock(func() Moment { return at })
			s := Server{Clock: clock, epochs: epochs{clock: clock}}
			e := &s.epochs
			server := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
			told := answer{server: server, sent: at, epoch: bson.NewObjectID(), elections: elections, known: true}
			e.heard(told, false)
			assert.True(t, s.ClockBasis().Sure)

			e.distrust()
			assert.False(t, s.ClockBasis().Sure)
			assert.True(t, e.due())
			assert.False(t, e.due(), "a server in trouble is not asked before each claim")

			at = at.Add(5 * time.Second)
			told.server, told.sent = server.Add(9*time.Second), at
			sure, stepped := e.heard(told, false)
			assert.True(t, stepped, "the clock of the last hello allows no such time")
			assert.False(t, sure)
			assert.False(t, e.due())
			assert.WithinDuration(t, told.server, s.ClockBasis().Latest, 100*time.Millisecond)
		})
	}
}
