package schedule_test

import (
	"archive/zip"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/internal/test/kit/fewer"
	"github.com/mongolock/mongolock/schedule"
)

// zones returns all zones of the Go distribution's time zone database.
func zones(t *testing.T) (all []*time.Location) {
	root, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
	require.NoError(t, err)
	files, err := zip.OpenReader(filepath.Join(strings.TrimSpace(string(root)), "lib", "time", "zoneinfo.zip"))
	require.NoError(t, err)
	defer files.Close()
	for _, file := range files.File {
		if zone, err := time.LoadLocation(file.Name); err == nil && !strings.HasSuffix(file.Name, "/") {
			all = append(all, zone)
		}
	}
	return all
}

// An hourMinute is an expression of five fields, read a second time by hand.
type hourMinute struct {
	text  string
	wild  bool
	match func(hour, minute int) bool
}

var hoursMinutes = []hourMinute{
	{"30 2 * * *", false, func(h, m int) bool { return m == 30 && h == 2 }},
	{"0 0 * * *", false, func(h, m int) bool { return m == 0 && h == 0 }},
	{"15 0,1,2,3 * * *", false, func(h, m int) bool { return m == 15 && h < 4 }},
	{"0 3 * * *", false, func(h, m int) bool { return m == 0 && h == 3 }},
	{"59 23 * * *", false, func(h, m int) bool { return m == 59 && h == 23 }},
	{"*/20 1-3 * * *", true, func(h, m int) bool { return m%20 == 0 && h >= 1 && h <= 3 }},
	{"5 * * * *", true, func(_, m int) bool { return m == 5 }},
}

// reference lists the due times between two moments by vixie cron's rules, minute by minute: a
// named time is due the first time the local clock shows it, or after the gap that skips it.
func (e hourMinute) reference(zone *time.Location, begin, end time.Time) (due []time.Time) {
	shown := map[time.Time]bool{} // local times, as if they were UTC
	wall := func(t time.Time) time.Time {
		_, offset := t.In(zone).Zone()
		return t.Add(time.Duration(offset) * time.Second)
	}
	const before = 4 * time.Hour // to know which times come a second time
	for at := begin.Add(-before); at.Before(end); at = at.Add(time.Minute) {
		is := wall(at)
		matches := e.match(is.Hour(), is.Minute())
		if !e.wild {
			matches = matches && !shown[is]
			last := wall(at.Add(-time.Minute))
			if gap := is.Sub(last) - time.Minute; gap > 0 && gap < 3*time.Hour {
				for skipped := last.Add(time.Minute); skipped.Before(is); skipped = skipped.Add(time.Minute) {
					matches = matches || e.match(skipped.Hour(), skipped.Minute()) && !shown[skipped]
					shown[skipped] = true
				}
			}
			shown[is] = true
		}
		if matches && !at.Before(begin) {
			due = append(due, at)
		}
	}
	return due
}

// changes returns the moments from begin to end, in whole hours, before which a zone's offset
// changes.
func changes(zone *time.Location, begin, end time.Time) (all []time.Time) {
	_, was := begin.In(zone).Zone()
	for at := begin; at.Before(end); at = at.Add(time.Hour) {
		if _, is := at.In(zone).Zone(); is != was {
			all, was = append(all, at), is
		}
	}
	return all
}

func TestCronIsDueWhenALocalClockSaysSoInEveryZone(t *testing.T) {
	t.Parallel()
	all, compared := zones(t), 0
	require.Greater(t, len(all), 500)
	const around = 30 * time.Hour
	some := fewer.Of(len(all))
	for i := 0; i < len(all); i += len(all) / some {
		zone := all[i]
		for _, change := range changes(zone, time.Date(2024, 12, 1, 0, 0, 0, 0, time.UTC), time.Date(2025, 12, 1, 0, 0, 0, 0, time.UTC)) {
			for _, e := range hoursMinutes {
				begin, end := change.Add(-around), change.Add(around)
				plan := schedule.Cron("CRON_TZ=" + zone.String() + " " + e.text)
				var due []time.Time
				for at := plan.Next(begin.Add(-time.Millisecond)); at.Before(end); at = plan.Next(at) {
					due = append(due, at)
				}
				compared += len(due)
				assert.Equal(t, e.reference(zone, begin, end), due, "%q in %v around %v", e.text, zone, change)
			}
		}
	}
	assert.Greater(t, compared, 15*some, "due times")
}

func TestControlTheReferenceDiffersFromAnotherZone(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	require.NoError(t, err)
	march := time.Date(2025, 3, 29, 0, 0, 0, 0, time.UTC)
	e := hoursMinutes[0]
	assert.NotEqual(t, e.reference(berlin, march, march.Add(72*time.Hour)), e.reference(time.FixedZone("", 3600), march, march.Add(72*time.Hour)))
}
