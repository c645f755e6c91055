package server

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// A server goes on in one second, however many writes that are, while its clock is behind.
func TestTokensRiseThroughASecondOfAnyLengthAndIntoTheNext(t *testing.T) {
	const now, last = tokenEpoch + 212_000_000, 1<<31 - 1
	highest := int64(0)
	for second := range uint32(3) {
		for _, i := range []uint32{0, 1, 2, 1 << 30, last - 1, last} {
			token := Token(bson.Timestamp{T: now + second, I: i})
			assert.Greater(t, token, highest, "%d, %d", second, i)
			highest = token
		}
	}
	assert.Positive(t, Token(bson.Timestamp{T: 3725000000, I: last}), "in January 2088")
}
