package doclock

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/kit/pace"
	"github.com/mongolock/mongolock/internal/test/mongo/faultproxy"
)

// The reply to a claim says when the server wrote it. Without that time it is not known how
// long the lease may be trusted.
func TestAGrantWithoutTheServersTimeIsNotTrusted(t *testing.T) {
	t.Parallel()
	for name, at := range map[string]any{"none": nil, "a number": 17} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := behindProxy(t, false, 5*time.Second)
			rule := f.proxy.On(claims.Nth(1), faultproxy.EditReply(func(reply bson.D) bson.D { return withAt(reply, at) }))
			_, err := f.TryAcquire(t.Context(), ID("o"))
			unknown(t, err)
			oneHit(t, rule)
			assert.Equal(t, "new", f.free(t, 3*time.Second), "after the clean-up")
		})
	}
}

// lateGrant has a claim take more than half its TTL to arrive. Its expiry is then written
// once more, by a command whose reply suffers a fault.
func lateGrant(t *testing.T, fault faultproxy.Action) (*Document[order], error) {
	ttl := min(pace.Of(3*time.Second), 12*time.Second) // a call takes 10 s at most, and this one more than half of it
	f := behindProxy(t, false, ttl)
	f.proxy.On(claims.Nth(1), faultproxy.DelayCommand(ttl*19/30)) // the server's clock is known to a round trip only, which may be long
	rule := f.proxy.On(faultproxy.Command("findAndModify").Where(func(c bson.Raw) bool { return has(c, "update", "$max", "lock.since") }), fault)
	doc, err := f.TryAcquire(t.Context(), ID("o"))
	oneHit(t, rule)
	return doc, err
}

func TestALateGrantIsGivenItsTimeByTheServersTimeAlone(t *testing.T) {
	t.Parallel()
	_, err := lateGrant(t, faultproxy.EditReply(func(reply bson.D) bson.D { return withAt(reply, nil) }))
	unknown(t, err)
}

// The control: with the server's time it is granted.
func TestControlALateGrantIsGivenItsTime(t *testing.T) {
	t.Parallel()
	doc, err := lateGrant(t, faultproxy.DelayReply(0))
	require.NoError(t, err)
	assert.Positive(t, doc.Lease().Remaining())
}

// A renewal without it changes no deadline.
func TestARenewalWithoutTheServersTimeProlongsNothing(t *testing.T) {
	t.Parallel()
	f := behindProxy(t, false, 5*time.Second)
	doc := must(f.Acquire(t.Context(), ID("o"), mongolock.NoRenewal()))(t)
	time.Sleep(500 * time.Millisecond) // real: so that a lease that was prolonged would show it
	before := doc.Lease().Remaining()
	rule := f.proxy.On(renewals.Nth(1), faultproxy.EditReply(func(reply bson.D) bson.D { return withAt(reply, nil) }))
	assert.Error(t, doc.Lease().Renew(t.Context()))
	oneHit(t, rule)
	assert.LessOrEqual(t, doc.Lease().Remaining(), before)
	require.NoError(t, doc.Lease().Renew(t.Context()))
	assert.Greater(t, doc.Lease().Remaining(), before, "after an ordinary renewal")
}

// withAt replaces the server's time in the lock of a reply's document; nil removes it.
func withAt(reply bson.D, at any) bson.D {
	var edited bson.D
	for _, e := range reply {
		value, _ := e.Value.(bson.RawValue)
		isTime := e.Key == "at"
		switch inner, isDocument := value.DocumentOK(); {
		case isTime && at == nil:
			continue
		case isTime:
			e.Value = at
		case isDocument && (e.Key == "value" || e.Key == "lock"):
			var fields bson.D
			elements, _ := inner.Elements()
			for _, f := range elements {
				fields = append(fields, bson.E{Key: f.Key(), Value: f.Value()})
			}
			e.Value = withAt(fields, at)
		}
		edited = append(edited, e)
	}
	return edited
}
