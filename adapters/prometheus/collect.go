package promlock

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/store"
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("mongolock_"+name, help, append([]string{"package"}, labels...), nil)
}

var (
	held          = desc("leases_held", "Leases that are held.")
	unreleased    = desc("leases_unreleased", "Leases that have ended and are not given back yet.")
	waiters       = desc("waiters", "Calls of Acquire that have not been answered, candidates for leader aside.")
	candidates    = desc("candidates", "Candidates that wait to be elected.")
	inLine        = desc("keys_in_line", "Keys in whose line this process stands, candidates aside.")
	ahead         = desc("ahead_in_line", "The most waiters that come before this process in the line of one key.")
	oldestWait    = desc("oldest_wait_seconds", "How long the longest waiter has waited, candidates aside.")
	oldestRenewal = desc("oldest_renewal_seconds", "How long ago the lease was renewed that has waited longest for its next renewal.")
	cleanUps      = desc("cleanups", "Claims of unknown outcome that are being cleaned up.")
	clients       = desc("clients", "Clients, schedulers and trees that are open, by the state of their feed: live, opening, idle or none.", "feed")

	descs = []*prometheus.Desc{held, unreleased, waiters, candidates, inLine, ahead, oldestWait, oldestRenewal, cleanUps, clients}
)

// Watch implements mongolock.StatsObserver.
func (c *Collector) Watch(stats func() mongolock.Stats) (stop func()) {
	s := &source{stats}
	c.meet(mongolock.Operation{Package: stats().Package})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sources[s] = true
	return func() {
		pkg := stats().Package
		c.mu.Lock()
		defer c.mu.Unlock()
		if !c.sources[s] {
			return
		}
		delete(c.sources, s)
		c.ended[pkg] = true
	}
}

// meet sets counters to zero before they count: to Prometheus the first event of a new counter
// is not an increase.
func (c *Collector) meet(of mongolock.Operation) {
	if c.key != nil && of.Op == mongolock.OpHold {
		c.mayBeLost(of)
	}
	pkg := of.Package
	if _, known := c.known.LoadOrStore(pkg, true); known {
		return
	}
	if c.key == nil {
		c.mayBeLost(of)
		c.missed.WithLabelValues(pkg)
		c.runs.WithLabelValues(pkg)
	}
	c.renewed.WithLabelValues(pkg)
	c.handoffs.WithLabelValues(pkg, mongolock.OutcomeGranted)
	for _, outcome := range []string{mongolock.OutcomeGranted, mongolock.OutcomeFailed, mongolock.OutcomeUnknown} {
		for op, d := range c.durations {
			if op == mongolock.OpRenew || op == mongolock.OpRelease || c.key == nil && op == mongolock.OpAcquire {
				d.WithLabelValues(pkg, outcome)
			}
		}
	}
}

func (c *Collector) mayBeLost(of mongolock.Operation) {
	of.Op = mongolock.OpHold
	for _, cause := range []string{causeMaxHold, causeStalled, causeBroken, causeLost} {
		c.lost.WithLabelValues(c.values(of, cause)...)
	}
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range descs {
		to <- d
	}
	for _, part := range c.parts() {
		part.Describe(to)
	}
}

func (c *Collector) parts() []prometheus.Collector {
	all := []prometheus.Collector{c.lost, c.renewed, c.handoffs, c.missed, c.runs, c.commands}
	for _, d := range c.durations {
		all = append(all, d)
	}
	return all
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(to chan<- prometheus.Metric) {
	for _, part := range c.parts() {
		part.Collect(to)
	}
	all, feeds := c.sums()
	for pkg, s := range all {
		gauge := func(d *prometheus.Desc, v float64, labels ...string) {
			to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, append([]string{pkg}, labels...)...)
		}
		gauge(held, float64(s.Held))
		gauge(unreleased, float64(s.Unreleased))
		gauge(waiters, float64(s.Waiters-s.Candidates))
		gauge(candidates, float64(s.Candidates))
		gauge(inLine, float64(s.InLine))
		gauge(ahead, float64(s.Ahead))
		gauge(oldestWait, s.OldestWait.Seconds())
		gauge(oldestRenewal, s.OldestRenewal.Seconds())
		gauge(cleanUps, float64(s.CleanUps))
		for _, state := range []store.FeedState{store.FeedNone, store.FeedIdle, store.FeedOpening, store.FeedLive} {
			gauge(clients, float64(feeds[feed{pkg, state}]), string(state))
		}
	}
}

// A feed names a state of the feeds of a package's clients.
type feed struct {
	pkg   string
	state store.FeedState
}

// sums adds up, by package, the numbers of open clients. They are zero if all of a package are closed. feeds
// counts the clients that have a feed in a state.
func (c *Collector) sums() (all map[string]mongolock.Stats, feeds map[feed]int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	all, feeds = make(map[string]mongolock.Stats), make(map[feed]int)
	for pkg := range c.ended {
		all[pkg] = mongolock.Stats{}
	}
	for s := range c.sources {
		is := s.stats()
		all[is.Package] = all[is.Package].Plus(is)
		feeds[feed{is.Package, is.Feed}]++
	}
	return all, feeds
}

var _ interface {
	mongolock.StatsObserver
	prometheus.Collector
} = (*Collector)(nil)
