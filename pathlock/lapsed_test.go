package pathlock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/internal/test/mongo/docset"
	"github.com/mongolock/mongolock/pathlock"
)

// A lock of ten seconds, after nine of which a member is elected whose clock is behind. By the clock of the old primary it
// has run out; by that of the new one it would last for long.
func TestATokenThatIsUnknownIsInNobodysWay(t *testing.T) {
	for name, ask := range map[string]func(t *testing.T, one, other *pathlock.Tree, token string) error{
		"to a release": func(t *testing.T, _, other *pathlock.Tree, token string) error {
			return other.Release(t.Context(), token)
		},
		"to a refresh": func(t *testing.T, one, _ *pathlock.Tree, token string) error {
			_, err := one.Refresh(t.Context(), token)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				set := docset.New(0)
				tree := func() *pathlock.Tree {
					storage, err := pathlock.OnMongo(set.Client(t, docset.None).Database("app").Collection("paths"))
					require.NoError(t, err)
					return treeOn(t, storage)
				}
				one, two, other := tree(), tree(), tree()
				_, err := other.Locks(t.Context()) // it knows the old primary
				require.NoError(t, err)
				l, err := one.Lock(t.Context(), exclusive("/a", 10*time.Second))
				require.NoError(t, err)
				time.Sleep(9 * time.Second)
				set.Elect(-15 * time.Second)
				time.Sleep(1500 * time.Millisecond)
				err = ask(t, one, other, l.Token)
				if err == nil { // the lock was refreshed
					_, err = two.Lock(t.Context(), exclusive("/a", time.Minute))
					require.ErrorIs(t, err, pathlock.ErrConflict)
					return
				}
				require.ErrorIs(t, err, pathlock.ErrUnknownToken)
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				defer cancel()
				_, err = two.LockWait(ctx, exclusive("/a", time.Minute))
				assert.NoError(t, err)
			})
		})
	}
}
