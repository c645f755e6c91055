package schedule_test

import (
	"testing"
	"time"

	"github.com/mongolock/mongolock/schedule"
)

// The table of doc.go, "What is sent", counted over ten fires, a minute apart, that one
// process gets and another does not. (On MongoDB a look is two commands, all else one:
// TestMongoAClaimIsOneCommandWonOrLost, TestMongoBetweenFiresNothingIsSent.)
func TestWhatIsSentForTenFires(t *testing.T) {
	type calls map[string]int
	for name, c := range map[string]struct {
		takes       time.Duration
		opts        []schedule.JobOption
		wins, loses calls
	}{
		"by default":                  {time.Second, nil, calls{"claim": 10, "finish": 10}, calls{"claim": 10}},
		"renewed, at a third of 30 s": {25 * time.Second, nil, calls{"claim": 10, "finish": 10, "renew": 20}, calls{"claim": 10}},
		"all that are missed": {time.Second, []schedule.JobOption{schedule.OnMissed(schedule.All)},
			calls{"claim": 10, "finish": 10}, calls{"claim": 10, "look": 10}},
		"repeated at once": {time.Second, []schedule.JobOption{schedule.OnDeath(schedule.AtOnce)},
			calls{"claim": 10, "finish": 10}, calls{"claim": 10, "look": 10}},
	} {
		t.Run(name, func(t *testing.T) {
			inRoom(t, func(r *room) {
				wins := r.process(1).add("job", schedule.Every(time.Minute), c.takes, c.opts...).start()
				loses := r.process(2).add("job", schedule.Every(time.Minute), c.takes, c.opts...)
				loses.plug.set(func(call string) (error, error) {
					if call == "claim" {
						time.Sleep(time.Millisecond) // a step behind the other
					}
					return nil, nil
				})
				loses.start()
				r.sleep(30 * time.Second)
				wins.plug.take() // a look for all jobs
				loses.plug.take()
				r.sleep(10*time.Minute + 15*time.Second) // who looks for a death does so a TTL later
				r.expect("who has the fires sends", wins.plug.take(), c.wins)
				r.expect("who has not sends", loses.plug.take(), c.loses)
				wins.end()
				loses.end()
			})
		})
	}
}
