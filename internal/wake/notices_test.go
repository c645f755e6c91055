package wake

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"

	"github.com/mongolock/mongolock/store"
)

func TestTheNextIsToldWhenAKeyIsOfferedToThoseBefore(t *testing.T) {
	line := []store.Place{"x:a:1", "x::2", "x:c:3", "x:d:4"} // the second hears no notices
	say := func(n int) (said []string) {
		for _, notice := range Offers("k", line, n) {
			said = append(said, notice.Kind+" "+notice.To+" "+string(notice.Place))
		}
		return said
	}
	assert.Empty(t, say(0))
	assert.Equal(t, []string{"offered a x:a:1"}, say(1))
	assert.Equal(t, []string{"offered a x:a:1", "next c x:c:3"}, say(2))
	assert.Equal(t, []string{"offered a x:a:1", "offered c x:c:3", "offered d x:d:4"}, say(4))
}

func TestWhatWasSentBesideAReleaseIsNotSentAgain(t *testing.T) {
	all := Offers("k", []store.Place{"x:a:1", "x:b:2"}, 1)
	assert.Equal(t, all[1:], Unsent(all, all[:1]))
	assert.Equal(t, all, Unsent(all, nil))
	blind := all[0]
	blind.Place = ""
	assert.Equal(t, all[1:], Unsent(all, []store.Notice{blind}), "it was meant for whatever place its process has")
}

func TestWhetherAKeyWasAskedForIsKnownBeforeItsHolderIs(t *testing.T) {
	inBubble(t, false, func(t *testing.T, w *world) {
		w.wait("a")
		w.notices <- store.Notice{}
		synctest.Wait()
		before := w.Asked("k")
		assert.Equal(t, before, w.Asked("k"))
		w.notices <- store.Notice{Topic: store.TopicLocks, Key: "k", Kind: store.KindWanted}
		synctest.Wait()
		assert.NotEqual(t, before, w.Asked("k"))
		w.Leave()
	})
}
