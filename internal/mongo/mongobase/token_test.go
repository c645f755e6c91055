package mongobase

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// A server goes on in one second, however many writes that are, while its clock is behind.
func TestTokensAndTheirSpareOnesRiseThroughASecondOfAnyLengthAndIntoTheNext(t *testing.T) {
	const now, last = tokenEpoch + 212_000_000, 1<<31 - 1
	entries := []uint32{0, 1, 2, 127, 128, roomyEntries - 2, roomyEntries - 1, roomyEntries, roomyEntries + 1, 1 << 30, last - 1, last}
	highest := int64(0)
	for second := range uint32(3) {
		for _, i := range entries {
			at := bson.Timestamp{T: now + second, I: i}
			assert.Greater(t, Token(at), highest, "%v", at)
			highest = Token(at) + int64(Spare(at))
		}
	}
	assert.Equal(t, 127, Spare(bson.Timestamp{T: now, I: roomyEntries - 1}))
	assert.Zero(t, Spare(bson.Timestamp{T: now, I: roomyEntries}))
	assert.Positive(t, Token(bson.Timestamp{T: 3725000000, I: last}), "in January 2088")
}
