package once_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/mongo/docdb"
	"github.com/mongolock/mongolock/internal/test/mongo/docset"
	"github.com/mongolock/mongolock/once"
)

const never = 1000 * time.Hour

// cutOff has a process work until it is cut off after a second, and a rival wait. It
// returns what the process's Do answered. While its function is heedless it goes on.
func cutOff(t *testing.T, w *world, first once.Func) (answer error) {
	var cut atomic.Bool
	var working sync.WaitGroup
	working.Go(func() {
		answer = w.do(t.Context(), "pod-1", func(docdb.Command) (time.Duration, bool) {
			if cut.Load() {
				return never, false
			}
			return 0, true
		}, first)
	})
	time.Sleep(time.Second) // virtual: it runs by now
	cut.Store(true)
	working.Go(func() { assert.NoError(t, w.do(t.Context(), "pod-2", docset.None, takes(time.Minute))) })
	working.Wait()
	assert.Equal(t, []string{"1 pod-1 died", "2 pod-2 succeeded"}, w.record())
	return answer
}

func TestARunnerThatIsCutOffStopsBeforeAnotherRuns(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		err := cutOff(t, w, takes(time.Hour))
		assert.ErrorIs(t, err, mongolock.ErrLost)
		assert.ErrorIs(t, err, context.Canceled, "what the function returned")
		w.ranApart()
	})
}

// The control: a function that does not look at its context runs beside the next one, and
// the test above would see that.
func TestControlAFunctionThatGoesOnAfterItsContextRunsBesideTheNext(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		err := cutOff(t, w, func(context.Context, once.Run) error {
			time.Sleep(30 * time.Second) // virtual: past the end of its lease
			return nil
		})
		assert.ErrorIs(t, err, once.ErrUnrecorded, "it has returned nil, and recorded nothing")
		assert.ErrorIs(t, err, mongolock.ErrLost)
		assert.True(t, w.overlap)
	})
}

// A reply is lost, or the command itself, at each step. The function has run once, or twice
// and the first time without a record.
func TestALostReplyAtEachStepLeavesOneRecord(t *testing.T) {
	steps := []string{"lock", "begin", "end", "release"}
	for n, step := range steps {
		for _, replyOnly := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, reply only %v", step, replyOnly), func(t *testing.T) {
				inVirtualTime(t, func(t *testing.T, w *world) {
					var sent atomic.Int32
					err := w.do(t.Context(), "pod-1", func(c docdb.Command) (time.Duration, bool) {
						if c.Name == "findAndModify" && int(sent.Add(1)) == n+1 {
							return never, replyOnly
						}
						return 0, true
					}, takes(time.Second))
					switch step {
					case "lock":
						require.ErrorIs(t, err, mongolock.ErrOutcomeUnknown)
						require.Empty(t, w.runs)
						assert.Empty(t, w.record())
					default:
						require.NoError(t, err)
						assert.Equal(t, []string{"1 pod-1 succeeded"}, w.record())
					}
					began := time.Now()
					require.NoError(t, w.do(t.Context(), "pod-2", docset.None, takes(time.Second)))
					assert.Less(t, time.Since(began), 2*ttl)
					assert.Len(t, w.runs, 1)
					assert.Len(t, w.record(), 1)
				})
			})
		}
	}
}

// The lease lasts for as long as it is renewed, so a save that never passes would be tried unseen.
func TestARecordThatIsNotSavedYetIsLoggedOnce(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		var log strings.Builder
		var sent atomic.Int32
		coll := w.collection(func(c docdb.Command) (time.Duration, bool) {
			if strings.Contains(fmt.Sprint(c.Body), string(once.Running)) && sent.Add(1) < 4 {
				return never, false
			}
			return 0, true
		})
		require.NoError(t, once.Do(t.Context(), coll, name, takes(0), once.WithLogger(slog.New(slog.NewTextHandler(&log, nil)))))
		assert.EqualValues(t, 4, sent.Load())
		assert.Equal(t, 1, strings.Count(log.String(), "once: the record is not saved yet"), log.String())
	})
}

// No command of the process arrives once its work is done, so no other process can know that it is.
func TestWorkThatIsDoneAndNotRecordedIsDoneAgain(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		var cut atomic.Bool
		err := w.do(t.Context(), "pod-1", func(docdb.Command) (time.Duration, bool) {
			if cut.Load() {
				return never, false
			}
			return 0, true
		}, func(context.Context, once.Run) error {
			cut.Store(true)
			return nil
		})
		require.ErrorIs(t, err, once.ErrUnrecorded)
		require.ErrorIs(t, err, mongolock.ErrOutcomeUnknown)
		require.NoError(t, w.do(t.Context(), "pod-2", docset.None, takes(0)))
		assert.Equal(t, []string{"pod-1", "pod-2"}, w.runs)
		assert.Equal(t, []string{"1 pod-1 died", "2 pod-2 succeeded"}, w.record())
		w.ranApart()
	})
}

// The clock of the primary that is elected shows that the lease ran out long ago.
func TestAnElectionWithAnotherClockTakesNoRunFromItsRunner(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		var working sync.WaitGroup
		working.Go(func() { assert.NoError(t, w.do(t.Context(), "pod-1", docset.None, takes(time.Minute))) })
		time.Sleep(time.Second) // virtual: it runs by now
		working.Go(func() { assert.NoError(t, w.do(t.Context(), "pod-2", docset.None, takes(time.Minute))) })
		for i := range 8 {
			time.Sleep(5 * time.Second) // virtual: between two elections
			w.Elect(time.Duration(30*(i%2)) * time.Second)
		}
		working.Wait()
		assert.Equal(t, []string{"1 pod-1 succeeded"}, w.record())
	})
}

func TestARunThatIsUnderWayIsShownAndOneThatDiedToo(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		ctx, die := context.WithCancel(t.Context())
		var cut atomic.Bool
		var working sync.WaitGroup
		working.Go(func() {
			_ = w.do(ctx, "pod-1", func(docdb.Command) (time.Duration, bool) {
				if cut.Load() {
					return never, false
				}
				return 0, true
			}, takes(time.Hour))
		})
		time.Sleep(time.Second) // virtual: it runs by now
		assert.Equal(t, []string{"1 pod-1 running"}, w.record())
		cut.Store(true)
		die()
		working.Wait()
		assert.Equal(t, []string{"1 pod-1 died"}, w.record())
	})
}

func TestADatabaseThatCannotBeReachedFailsTheCallAtOnce(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		began := time.Now()
		err := w.do(t.Context(), "pod-1", func(docdb.Command) (time.Duration, bool) { return never, false }, takes(0))
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Less(t, time.Since(began), 15*time.Second)
		assert.Empty(t, w.runs)
	})
}

func TestAStrangersDocumentIsNamedAndLeftAlone(t *testing.T) {
	for what, doc := range map[string]map[string]any{
		`it has no field once`: {"_id": name, "state": "new"},
		`its field once is `:   {"_id": name, "once": 2},
	} {
		inVirtualTime(t, func(t *testing.T, w *world) {
			coll := w.calm()
			_, err := coll.InsertOne(t.Context(), doc)
			require.NoError(t, err)
			err = w.do(t.Context(), "pod-1", docset.None, takes(0))
			assert.ErrorIs(t, err, mongolock.ErrForeign)
			assert.ErrorContains(t, err, what)
			_, err = once.Look(t.Context(), coll, name)
			assert.ErrorIs(t, err, mongolock.ErrForeign)
			assert.ErrorIs(t, once.Reset(t.Context(), coll, name, "x"), mongolock.ErrForeign)
			raw, err := coll.FindOne(t.Context(), map[string]any{"_id": name}).Raw()
			require.NoError(t, err)
			_, locked := raw.LookupErr("lock")
			assert.Error(t, locked, "its document was locked: %v", raw)
		})
	}
}

func TestBadInputIsNamedAndNothingIsSent(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		coll := w.calm()
		fn := takes(0)
		long := string(make([]byte, 257))
		for want, err := range map[string]error{
			"once: Do: fn is nil":                     once.Do(t.Context(), coll, name, nil),
			"once: Do: the collection is nil":         once.Do(t.Context(), nil, name, fn),
			"once: the name is empty":                 once.Do(t.Context(), coll, "", fn),
			"once: the name has 257 bytes":            once.Do(t.Context(), coll, long, fn),
			"once: the name is not valid UTF-8":       once.Do(t.Context(), coll, "\xff", fn),
			"once: a nil Option":                      once.Do(t.Context(), coll, name, fn, nil),
			"once: Content(): nothing is given":       once.Do(t.Context(), coll, name, fn, once.Content()),
			"once: Content is given twice":            once.Do(t.Context(), coll, name, fn, once.Content([]byte("a")), once.Content([]byte("a"))),
			"once: With(Shared())":                    once.Do(t.Context(), coll, name, fn, once.With(mongolock.Shared())),
			"once: With(OneOf(3))":                    once.Do(t.Context(), coll, name, fn, once.With(mongolock.OneOf(3))),
			"once: With(MinHold(1s))":                 once.Do(t.Context(), coll, name, fn, once.With(mongolock.MinHold(time.Second))),
			"once: With: mongolock: TTL(1ns)":         once.Do(t.Context(), coll, name, fn, once.With(mongolock.TTL(1))),
			"mongolock: WithOwner":                    once.Do(t.Context(), coll, name, fn, once.WithOwner("")),
			"once: Reset: the reason is empty":        once.Reset(t.Context(), coll, name, " "),
			"once: Reset: the collection is nil":      once.Reset(t.Context(), nil, name, "x"),
			"once: Reset: Content":                    once.Reset(t.Context(), coll, name, "x", once.Content([]byte("a"))),
			"once: Look: the collection is nil":       second(once.Look(t.Context(), nil, name)),
			"once: the name is empty\nonce: Do: fn i": once.Do(t.Context(), coll, "", nil),
		} {
			assert.ErrorContains(t, err, want)
		}
		for _, err := range once.List(t.Context(), nil) {
			assert.ErrorContains(t, err, "once: List: the collection is nil")
		}
		ended, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("told to stop"))
		assert.ErrorContains(t, once.Do(ended, coll, name, fn), "told to stop")
		assert.Empty(t, w.Take())
	})
}

func second[V any](_ V, err error) error { return err }

// The reads of the record and of its lock are two: the run ends between them.
func TestARunThatEndsWhileItsRecordIsReadHasNotDied(t *testing.T) {
	for name, read := range map[string]func(*testing.T, *mongo.Collection) once.Record{
		"Look": func(t *testing.T, coll *mongo.Collection) once.Record {
			r, err := once.Look(t.Context(), coll, name)
			require.NoError(t, err)
			return r
		},
		"List": func(t *testing.T, coll *mongo.Collection) (last once.Record) {
			for r, err := range once.List(t.Context(), coll) {
				require.NoError(t, err)
				last = r
			}
			return last
		},
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, w *world) {
				var working sync.WaitGroup
				working.Go(func() { assert.NoError(t, w.do(t.Context(), "pod-1", docset.None, takes(3*time.Second))) })
				time.Sleep(time.Second) // virtual: it runs by now
				var finds atomic.Int32
				r := read(t, w.collection(func(c docdb.Command) (time.Duration, bool) {
					if c.Name == "find" && finds.Add(1) == 2 {
						return 5 * time.Second, false
					}
					return 0, true
				}))
				require.Len(t, r.Past, 1)
				assert.Equal(t, once.Succeeded, r.Past[0].Outcome)
				assert.True(t, r.Done)
				working.Wait()
			})
		})
	}
}
