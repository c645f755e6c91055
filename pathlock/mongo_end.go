package pathlock

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/mongo/server"
)

// release removes a lock with one command.
func (m *mongoTree) release(ctx context.Context, token string) outcome {
	if token == m.name { // which is the ID of the document with the word
		return outcome{err: ErrUnknownToken}
	}
	for ctx = server.Bare(ctx); ; {
		if err := notStarted(ctx); err != nil {
			return outcome{fault: err}
		}
		if _, err := m.clock(ctx, nil); err != nil {
			return outcome{fault: err}
		}
		filter := bson.D{{Key: "_id", Value: token}, {Key: fieldTree, Value: m.name}}
		reply, err := m.base.Remove(ctx, m.base.MajorityJournaled, append(filter, m.notLapsed()...))
		switch {
		case err != nil:
			return outcome{fault: server.Classified(err)}
		case reply.Found():
			return outcome{changed: true}
		}
		if r, o := m.alive(ctx, token, true); r == nil {
			return o
		}
	}
}

// end removes a record, if it has not changed since it was seen. It is durable: a lock that came back
// after a failover would be in the way until it runs out.
func (m *mongoTree) end(ctx context.Context, r *record) (gone bool, err error) {
	reply, err := m.base.Remove(server.Bare(ctx), m.base.MajorityJournaled, bson.D{{Key: "_id", Value: r.Token}, {Key: fieldRev, Value: r.rev}})
	return reply.Found(), err
}

// takeBack removes a lock in the session of its attempt, so that a late command of the attempt
// is refused.
func (m *mongoTree) takeBack(ctx context.Context, token string) (settled bool, err error) {
	ctx, a := m.base.BeginUndo(ctx, token)
	r, err := m.base.Remove(ctx, m.base.MajorityJournaled, bson.D{{Key: "_id", Value: token}})
	return m.base.Undone(a, r.Found(), err)
}
