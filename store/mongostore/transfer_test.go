package mongostore

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/test/kit/testserver"
	"github.com/mongolock/mongolock/store"
)

func TestAHandOverAppliesOnlyToTheRevisionOfItsGrant(t *testing.T) {
	t.Parallel()
	assert.False(t, handedOverLate(t), "took the key from somebody granted meanwhile")
}

func TestAHandOverAfterAKeptReleaseWhoseReplyIsLostIsRefused(t *testing.T) {
	t.Parallel()
	line := &testserver.Line{}
	f := newFixture(t, line.Through, withoutRetries)
	held := exclusiveClaim("k", 10*time.Second)
	f.acquire(f.store, held)
	line.Set(func(name string, _ bson.Raw) testserver.Fate { return testserver.Fate{Lose: isModify(name)} })
	err := released(f.ctx(), f.store, held.Ref, 5*time.Second)
	require.Error(t, err, "the reply was lost, and the release has an answer: the test shows nothing")
	line.Set(nil)
	_, err = f.store.Transfer(f.ctx(), held.Ref, exclusiveClaim("k", time.Minute))
	assert.ErrorIs(t, err, store.ErrGone, "handed over what was given back")
}
