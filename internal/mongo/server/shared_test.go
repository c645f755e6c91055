package server

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestCallersThatAskAtOneTimeShareOneAnswer(t *testing.T) {
	for name, answer := range map[string]error{"answered": nil, "failed": errors.New("no server")} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var s Shared
				var asked atomic.Int32
				var all sync.WaitGroup
				for range 32 {
					all.Go(func() {
						err := s.Ask(t.Context(), func(context.Context) error {
							asked.Add(1)
							time.Sleep(time.Second)
							return answer
						})
						assert.Equal(t, answer, err)
					})
				}
				all.Wait()
				assert.EqualValues(t, 1, asked.Load())
				assert.Equal(t, answer, s.Ask(t.Context(), func(context.Context) error { asked.Add(1); return answer }))
				assert.EqualValues(t, 2, asked.Load(), "an answer is not kept")
			})
		})
	}
}

func TestACallerThatGivesUpDoesNotFailTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Shared
		ask := func(ctx context.Context) error {
			select {
			case <-time.After(time.Minute):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		impatient, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var all sync.WaitGroup
		all.Go(func() { assert.ErrorIs(t, s.Ask(impatient, ask), context.DeadlineExceeded) })
		synctest.Wait()
		all.Go(func() { assert.NoError(t, s.Ask(t.Context(), ask)) })
		all.Wait()

		all.Go(func() { assert.NoError(t, s.Ask(t.Context(), ask)) })
		synctest.Wait()
		assert.ErrorIs(t, s.Ask(impatient, ask), context.DeadlineExceeded, "while somebody else asks")
		all.Wait()
	})
}
