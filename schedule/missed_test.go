package schedule_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/mongolock/mongolock/schedule"
)

func TestMissedFiresRunAsOnMissedSays(t *testing.T) {
	for missed, want := range map[schedule.Missed][]time.Duration{
		schedule.None: {1 * time.Hour, 2 * time.Hour, 6 * time.Hour},
		schedule.One:  {1 * time.Hour, 2 * time.Hour, 5 * time.Hour, 6 * time.Hour},
		schedule.All:  {1 * time.Hour, 2 * time.Hour, 3 * time.Hour, 4 * time.Hour, 5 * time.Hour, 6 * time.Hour},
	} {
		t.Run(string(missed), func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				opt := schedule.OnMissed(missed)
				p := c.process(1).add("hourly", schedule.Every(time.Hour), time.Minute, opt).start()
				c.sleep(150 * time.Minute)
				p.end() // no process is up at three, four and five
				c.sleep(165 * time.Minute)
				one := c.process(2).add("hourly", schedule.Every(time.Hour), time.Minute, opt).start()
				two := c.process(3).add("hourly", schedule.Every(time.Hour), time.Minute, opt).start()
				c.sleep(75 * time.Minute)
				one.end()
				two.end()
				assert.Equal(c, want, c.fires())
			})
		})
	}
}

func TestFiresDuringAnOutageAreMissed(t *testing.T) {
	for missed, want := range map[schedule.Missed][]time.Duration{
		schedule.None: seconds(600, 2400),
		schedule.One:  seconds(600, 1800, 2400),
		schedule.All:  seconds(600, 1200, 1800, 2400),
	} {
		t.Run(string(missed), func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				p := c.process(1).add("job", schedule.Every(10*time.Minute), time.Second, schedule.OnMissed(missed)).start()
				c.sleep(15 * time.Minute)
				p.link.cut()
				c.sleep(20 * time.Minute)
				p.link.fail(nil)
				c.sleep(7 * time.Minute)
				p.end()
				assert.Equal(c, want, c.fires())
			})
		})
	}
}

func TestAShortOutageMissesNothing(t *testing.T) {
	inCluster(t, func(c *cluster) {
		p := c.process(1).add("daily", schedule.Every(24*time.Hour), time.Second).start()
		c.sleep(24*time.Hour - time.Second)
		p.link.cut()
		c.sleep(20 * time.Second)
		p.link.fail(nil)
		c.sleep(40 * time.Second)
		p.end()
		assert.Equal(c, []time.Duration{24 * time.Hour}, c.fires())
	})
}
