package schedule_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/schedule"
)

// A claim that was refused plans a read a TTL later. If that came between a read and what the
// read planned, a run that had died was repeated a minute late.
func TestTheEarlierOfTwoReadsAtAJobStays(t *testing.T) {
	jobs, err := schedule.InMemory()
	require.NoError(t, err)
	require.NoError(t, jobs.Add("report", schedule.Every(time.Hour), func(context.Context, schedule.Run) error { return nil }))
	soon, late := time.Now().Add(time.Second), time.Now().Add(time.Minute)
	assert.Equal(t, soon, jobs.ReadsAt("report", late, soon))
	assert.Equal(t, soon, jobs.ReadsAt("report", late))
}
