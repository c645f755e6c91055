package mongostore

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/internal/test/kit/testserver"
	"github.com/mongolock/mongolock/store"
)

func TestManyNoticesAreOneInsert(t *testing.T) {
	t.Parallel()
	testserver.Need(t, "capped")
	f := newFixture(t)
	for _, err := range f.store.Watch(f.ctx(), store.Audience{}) { // it makes the collection
		require.NoError(t, err)
		break
	}
	f.tap.Take()
	all := make([]store.Notice, 400)
	for i := range all {
		all[i] = store.Notice{Topic: store.TopicLocks, Key: fmt.Sprint("key-", i), Kind: store.KindOffered, To: "here"}
	}
	require.NoError(t, f.store.Notify(f.ctx(), all...))
	assert.Equal(t, []string{"insert"}, f.tap.TakeNames())
}
