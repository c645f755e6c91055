package leader_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/kit/lab"
	"github.com/mongolock/mongolock/leader"
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/memstore"
)

// The defaults of a client are for its work. A lease that they ended while it shows a priority would cost
// the candidate its place in line.
func TestACandidateKeepsItsPlaceWhateverItsClientsDefaultsAre(t *testing.T) {
	for name, def := range map[string]mongolock.ClientOption{
		"MaxStall": mongolock.MaxStall(20 * time.Second), "MaxHold": mongolock.MaxHold(20 * time.Second),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				in, r := memstore.New(), newReign()
				stop := r.candidate(t, in, "first")
				r.leads(t, "first", 0)
				client := lab.Client(t, in, def)
				end := r.stand(t, client, "high", leader.Priority(5))
				place := func() (all []store.Place) {
					looked, err := in.Look(t.Context(), []string{"billing"})
					require.NoError(t, err)
					return looked[0].Waiting("", "")
				}
				time.Sleep(time.Second)
				was := place()
				require.Len(t, was, 1)
				for range 600 {
					time.Sleep(time.Second)
					if !assert.Equal(t, was, place()) {
						break
					}
				}
				end()
				stop()
				require.NoError(t, client.Close())
			})
		})
	}
}

// No option turns renewal on again.
func TestAPriorityIsRefusedToAClientWhoseLeasesAreNotRenewed(t *testing.T) {
	client := lab.Client(t, memstore.New(), mongolock.NoRenewal())
	_, err := leader.New(client, "billing", leader.Priority(1))
	assert.ErrorContains(t, err, "NoRenewal")
	_, err = leader.New(client, "billing", leader.Priority(0))
	assert.NoError(t, err, "it shows nothing")
}
