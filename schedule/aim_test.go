package schedule_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/schedule"
)

// After a month there are 2.6 million of them, and to count them all holds up the run for seconds.
func TestDroppedDueTimesAreCountedUpToAMillion(t *testing.T) {
	inCluster(t, func(c *cluster) {
		secondly := schedule.Cron("* * * * * *")
		_, err := c.store.Register(c.Context(), "job", secondly.String(), c.begin)
		require.NoError(c, err)
		c.until(30 * 24 * time.Hour)
		var dropped []schedule.Event
		p := c.process(1, schedule.WithEvents(func(e schedule.Event) {
			if e.Kind == schedule.Dropped {
				dropped = append(dropped, e)
			}
		})).add("job", secondly, time.Minute).start()
		c.sleep(time.Second / 2)
		p.end()
		require.Len(c, dropped, 1)
		assert.Equal(c, 1_000_000, dropped[0].Count)
		assert.Equal(c, time.Second, dropped[0].First.Sub(c.begin))
		assert.Equal(c, 30*24*time.Hour-time.Second, dropped[0].Due.Sub(c.begin))
	})
}

// A process starts when the due time of 8:00 is exactly as old as MaxLate allows.
func TestWhatEachDropsWasTooLate(t *testing.T) {
	inCluster(t, func(c *cluster) {
		_, err := c.store.Register(c.Context(), "job", schedule.Every(time.Minute).String(), c.begin)
		require.NoError(c, err)
		c.until(10 * time.Minute)
		var why []string
		p := c.process(1, schedule.WithEvents(func(e schedule.Event) { why = append(why, e.Why) }))
		p.add("job", schedule.Every(time.Minute), time.Second, schedule.Each(), schedule.MaxLate(2*time.Minute)).start()
		c.sleep(time.Second / 2)
		p.end()
		assert.Equal(c, 8*time.Minute, c.fires()[0])
		assert.Equal(c, "they were later than MaxLate allows", why[0])
	})
}
