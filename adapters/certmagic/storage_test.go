package certmagiclock_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock"
	certmagiclock "github.com/mongolock/mongolock/adapters/certmagic"
	"github.com/mongolock/mongolock/internal/test/kit/testserver"
)

func storage(t testing.TB, tap ...*testserver.Tap) *certmagiclock.Storage {
	t.Helper()
	var db *mongo.Client
	if len(tap) > 0 {
		db = testserver.Client(t, tap[0].On)
	} else {
		db = testserver.Client(t)
	}
	coll := testserver.Collection(t, db)
	locks, err := mongolock.New(testserver.Collection(t, db), mongolock.WithLogger(slog.New(slog.DiscardHandler)), mongolock.WithoutIndex())
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, locks.Close()) })
	s, err := certmagiclock.New(locks, coll, certmagiclock.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(t, err)
	return s
}

// The next three are CertMagic's own tests of its FileStorage, which its storages share no
// suite for.

func TestAStoredValueIsLoaded(t *testing.T) {
	s := storage(t)
	require.NoError(t, s.Store(t.Context(), "foo", []byte("bar")))
	got, err := s.Load(t.Context(), "foo")
	require.NoError(t, err)
	assert.Equal(t, "bar", string(got))
}

func TestAValueIsNeverSeenHalf(t *testing.T) {
	s := storage(t)
	a, b := bytes.Repeat([]byte("a"), 4<<20), bytes.Repeat([]byte("b"), 4<<20)
	require.NoError(t, s.Store(t.Context(), "foo", a))
	stored := make(chan error, 1)
	go func() { stored <- s.Store(t.Context(), "foo", b) }()
	for done := false; !done; {
		select {
		case err := <-stored:
			require.NoError(t, err)
			done = true
		default:
		}
		got, err := s.Load(t.Context(), "foo")
		require.NoError(t, err)
		require.True(t, bytes.Equal(a, got) || bytes.Equal(b, got), "neither value")
	}
}

func TestALockIsTakenAndGivenBackOnAServer(t *testing.T) {
	s := storage(t)
	ended, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	require.NoError(t, s.Lock(t.Context(), "foo"))
	require.Error(t, s.Lock(ended, "foo"))
	require.NoError(t, s.Unlock(ended, "foo"))
	require.NoError(t, s.Lock(t.Context(), "foo"))
	require.NoError(t, s.Unlock(t.Context(), "foo"))
}

// A pruned FileStorage has no empty directories, which CertMagic's contract does not have
// either: "directories" are only implicit.
type pruned struct{ certmagic.FileStorage }

func (p *pruned) Delete(ctx context.Context, key string) error {
	err := p.FileStorage.Delete(ctx, key)
	for dir := filepath.Dir(p.Filename(key)); dir != p.Path; dir = filepath.Dir(dir) {
		if os.Remove(dir) != nil {
			break // it is not empty
		}
	}
	return err
}

// CertMagic's own storage is the judge of what every call answers.
func TestTheStorageAnswersAsCertMagicsFileStorageDoes(t *testing.T) {
	ours, theirs := storage(t), &pruned{certmagic.FileStorage{Path: t.TempDir()}}
	random := rand.New(rand.NewPCG(1, 2))
	dirs := []string{"a", "a/b", "a-b", "a.b", "a/b/c", "a0", "ab", "b", "certificates/ca/example.com", "ä/ö"}
	key := func() string {
		k := dirs[random.IntN(len(dirs))]
		if random.IntN(3) > 0 {
			k += fmt.Sprintf("/%d.crt", random.IntN(3)) // files have an ending: none is a directory too
		}
		return []string{k, k, "/" + k, k + "/", strings.Replace(k, "/", "//", 1)}[random.IntN(5)]
	}
	ctx := t.Context()
	kinds := map[string]int{}
	for i := range 600 {
		k := key()
		at := fmt.Sprintf("step %d, key %q", i, k)
		switch random.IntN(6) {
		case 0, 1:
			if !strings.Contains(k, ".crt") {
				continue
			}
			value := []byte(strings.Repeat("x", random.IntN(100)))
			require.NoError(t, ours.Store(ctx, k, value), at)
			require.NoError(t, theirs.Store(ctx, strings.TrimSuffix(k, "/"), value), at)
			kinds["store"]++
		case 2:
			got, err := ours.Load(ctx, k)
			want, theirErr := theirs.Load(ctx, k)
			if theirErr != nil { // also of a directory, where theirs is another error
				require.ErrorIs(t, err, fs.ErrNotExist, at)
				continue
			}
			require.NoError(t, err, at)
			require.Equal(t, want, got, at)
			kinds["load"]++
		case 3:
			if random.IntN(3) > 0 {
				continue
			}
			require.NoError(t, ours.Delete(ctx, k), at)
			require.NoError(t, theirs.Delete(ctx, k), at)
			kinds["delete"]++
		case 4:
			got, err := ours.Stat(ctx, k)
			want, theirErr := theirs.Stat(ctx, k)
			require.Equal(t, theirErr == nil, err == nil, "%s: %v and %v", at, theirErr, err)
			require.Equal(t, theirs.Exists(ctx, k), ours.Exists(ctx, k), at)
			if theirErr != nil {
				require.ErrorIs(t, err, fs.ErrNotExist, at)
				continue
			}
			require.Equal(t, want.IsTerminal, got.IsTerminal, at)
			require.Equal(t, want.Key, got.Key, at)
			if want.IsTerminal {
				require.Equal(t, want.Size, got.Size, at)
				kinds["stat of a file"]++
			} else {
				kinds["stat of a directory"]++
			}
		case 5:
			recursive := random.IntN(2) == 0
			if random.IntN(5) == 0 {
				k = ""
			}
			got, err := ours.List(ctx, k, recursive)
			want, theirErr := theirs.List(ctx, k, recursive)
			require.Equal(t, theirErr == nil, err == nil, "%s: %v and %v", at, theirErr, err)
			if theirErr != nil {
				require.ErrorIs(t, err, fs.ErrNotExist, at)
				continue
			}
			clean := func(all []string) []string {
				for i := range all {
					all[i] = strings.TrimPrefix(filepath.Clean(all[i]), "/")
				}
				slices.Sort(all)
				return all
			}
			require.Equal(t, clean(want), clean(got), "%s, recursive %v", at, recursive)
			if len(want) > 1 {
				kinds["list"]++
			}
		}
	}
	for _, kind := range []string{"store", "load", "delete", "stat of a file", "stat of a directory", "list"} {
		assert.Greater(t, kinds[kind], 5, "too few of %q to say anything", kind)
	}
}

func TestManyProcessesStoreANewKeyAtOnce(t *testing.T) {
	s := storage(t)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() { assert.NoError(t, s.Store(t.Context(), "a/b", []byte{byte(i)})) })
	}
	wg.Wait()
	keys, err := s.List(t.Context(), "a", true)
	assert.NoError(t, err)
	assert.Equal(t, []string{"a/b"}, keys)
}

func TestTheModificationTimeIsTheServers(t *testing.T) {
	s := storage(t)
	require.NoError(t, s.Store(t.Context(), "a", []byte("1")))
	first, err := s.Stat(t.Context(), "a")
	require.NoError(t, err)
	time.Sleep(10 * time.Millisecond) // real: so that the server's clock, in milliseconds, shows another time
	require.NoError(t, s.Store(t.Context(), "a", []byte("2")))
	second, err := s.Stat(t.Context(), "a")
	require.NoError(t, err)
	assert.True(t, second.Modified.After(first.Modified), "%v and then %v", first.Modified, second.Modified)
}

func TestNilIsStoredAsAnEmptyValue(t *testing.T) {
	s := storage(t)
	require.NoError(t, s.Store(t.Context(), "a", nil))
	got, err := s.Load(t.Context(), "a")
	assert.NoError(t, err)
	assert.Empty(t, got)
}

func TestBadKeysAndValuesAreRefusedBeforeAnythingIsSent(t *testing.T) {
	tap := &testserver.Tap{}
	s := storage(t, tap)
	tap.Take()
	for _, key := range []string{"", "/", "\xff", strings.Repeat("k", certmagiclock.MaxKey+1)} {
		assert.ErrorIs(t, s.Store(t.Context(), key, nil), certmagiclock.ErrKey, "%.5q", key)
		_, err := s.Load(t.Context(), key)
		assert.ErrorIs(t, err, certmagiclock.ErrKey, "%.5q", key)
		assert.ErrorIs(t, s.Delete(t.Context(), key), certmagiclock.ErrKey, "%.5q", key)
	}
	assert.ErrorIs(t, s.Store(t.Context(), "a", make([]byte, certmagiclock.MaxValue+1)), certmagiclock.ErrTooLarge)
	assert.Empty(t, tap.TakeNames())
}

func TestTheLargestValueFitsIntoADocument(t *testing.T) {
	s := storage(t)
	key := strings.Repeat("k", certmagiclock.MaxKey)
	require.NoError(t, s.Store(t.Context(), key, make([]byte, certmagiclock.MaxValue)))
	got, err := s.Load(t.Context(), key)
	require.NoError(t, err)
	assert.Len(t, got, certmagiclock.MaxValue)
}

func TestEveryCallIsOneCommand(t *testing.T) {
	tap := &testserver.Tap{}
	s := storage(t, tap)
	ctx := t.Context()
	require.NoError(t, s.Store(ctx, "a/b", []byte("1"))) // and the connection is open
	tap.Take()
	sent := func(want string, call func()) {
		t.Helper()
		call()
		assert.Equal(t, []string{want}, tap.TakeNames())
	}
	sent("update", func() { assert.NoError(t, s.Store(ctx, "a/b", []byte("2"))) })
	sent("find", func() { _, err := s.Load(ctx, "a/b"); assert.NoError(t, err) })
	sent("find", func() { assert.True(t, s.Exists(ctx, "a")) })
	sent("find", func() { _, err := s.Stat(ctx, "a/b"); assert.NoError(t, err) })
	sent("find", func() { _, err := s.List(ctx, "a", true); assert.NoError(t, err) })
	sent("delete", func() { assert.NoError(t, s.Delete(ctx, "a")) })
}

func TestAnEndedContextIsHonoured(t *testing.T) {
	s := storage(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	assert.ErrorIs(t, s.Store(ctx, "a", nil), context.Canceled)
	_, err := s.Load(ctx, "a")
	assert.ErrorIs(t, err, context.Canceled)
	assert.ErrorIs(t, s.Delete(ctx, "a"), context.Canceled)
	_, err = s.List(ctx, "a", true)
	assert.ErrorIs(t, err, context.Canceled)
	assert.False(t, s.Exists(ctx, "a"))
}
