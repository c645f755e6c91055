package errtext

import (
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestTheNameIsSaidOnce(t *testing.T) {
	lost, unapplied := errors.New("mongolock: lease is lost"), errors.New("mongolock: not applied")
	for want, err := range map[string]error{
		"mongolock: lease is lost\nnot applied": Join(lost, unapplied),
		"EOF\nmongolock: lease is lost":         Join(io.EOF, lost),
		"mongolock: lease is lost: EOF (not applied)": Errorf("%w: %w", lost,
			Errorf("%w (%w)", io.EOF, unapplied)),
		"EOF": Join(nil, io.EOF),
	} {
		assert.EqualError(t, err, want)
	}
	both := Join(lost, Errorf("%w (%w)", io.EOF, unapplied))
	for _, part := range []error{lost, unapplied, io.EOF} {
		assert.ErrorIs(t, both, part)
	}
	assert.NoError(t, Join(nil, nil))
}

func TestAKeyThatIsJSONIsNotEscaped(t *testing.T) {
	assert.Equal(t, `"nightly"`, Key("nightly"))
	assert.Equal(t, "`{\"_id\":17}`", Key(`{"_id":17}`))
	assert.Equal(t, `"{\"_id\":\"a`+"`"+`b\"}"`, Key("{\"_id\":\"a`b\"}"))
}
