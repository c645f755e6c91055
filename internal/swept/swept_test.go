package swept_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/mongolock/mongolock/internal/swept"
)

func TestAMapKeepsWhatIsAliveAndDropsTheRestInTime(t *testing.T) {
	var m swept.Map[int, bool]
	asked := 0
	dead := func(_ int, alive bool) bool { asked++; return !alive }
	for i := range 10_000 {
		m.Put(i, i < 100, dead)
		assert.LessOrEqual(t, len(m.All), 201)
	}
	for i := range 100 {
		assert.Contains(t, m.All, i)
	}
	assert.Less(t, asked, 30_000, "entries looked at: a few for each that was put")
}

func TestASmallMapIsNotSwept(t *testing.T) {
	var m swept.Map[int, bool]
	for i := range 64 {
		m.Put(i, false, func(int, bool) bool { t.Fatal("swept"); return true })
	}
	assert.Len(t, m.All, 64)
}
