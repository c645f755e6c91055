package mongolease

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/mongo/mongobase"
	"github.com/mongolock/mongolock/internal/mongo/mongoerr"
	"github.com/mongolock/mongolock/store"
)

// A Contender is a claim with the commands that only its store knows.
type Contender[R Record] interface {
	// Claim sends the first command, which the server applies if the key is free. Refused
	// reports whether its answer refuses the claim because the key has a document.
	Claim(ctx context.Context) (Image[R], Tenure, error)
	Refused(image Image[R], err error) bool
	// TakeOver sends the compare-and-swap on a document whose holders are all over. Its filter
	// names the beat of each holder.
	TakeOver(ctx context.Context, seen R) (Image[R], Tenure, error)
	// Word leaves word if the claim asks for it, and returns the document. It finds nothing if
	// the document is gone, or is a stranger's.
	Word(ctx context.Context) (Image[R], error)
	// Look reads the document.
	Look(ctx context.Context) (Image[R], error)
	// CleanUp removes the claim by its ID, in the attempt's session. It reports whether a
	// process may be waiting for the key, which is free now.
	CleanUp(ctx context.Context) (wanted bool, err error)
	// Missed returns the answer to a claim that was refused, if the reason is not needed; nil
	// if the document is to be read.
	Missed() error
	// Absent returns the answer if no document is there to refuse the claim. refusal is the
	// server's error.
	Absent(refusal error) error
}

// Acquire claims a key: with a command that is applied if the key is free, and after a refusal
// with a look at the document that refused it.
func (s *Steps[R, X]) Acquire(ctx context.Context, c *Claim, with Contender[R]) (store.Grant, error) {
	if c.Held && c.Want > 0 {
		// If the key is held, leaving word is the look, and nothing else of the claim is sent.
		image, err := with.Word(ctx)
		switch {
		case err != nil:
			return store.Grant{}, mongoerr.NotApplied(err)
		case image.Found():
			return s.judge(ctx, c, with, image)
		}
	}
	image, t, err := with.Claim(ctx)
	switch {
	case with.Refused(image, err):
		c.Attempt.Answered(image.Reply, true)
		return s.contest(ctx, c, with, err)
	case err != nil:
		return store.Grant{}, mongobase.RefusedOrUnknown(image.Reply, err)
	}
	return s.Grant(ctx, c, image, t)
}

// contest reads the document that is in the way, leaving word if the claim asks for it, and
// takes the key over if no holder is live any more.
func (s *Steps[R, X]) contest(ctx context.Context, c *Claim, with Contender[R], refusal error) (store.Grant, error) {
	if missed := with.Missed(); missed != nil {
		return store.Grant{}, s.Settle(ctx, c, with, mongoerr.NotApplied(missed))
	}
	image, err := s.obstacle(ctx, c, with)
	switch {
	case err != nil:
		return store.Grant{}, c.Attempt.NotApplied(err)
	case !image.Found():
		return store.Grant{}, s.Settle(ctx, c, with, with.Absent(refusal))
	}
	return s.judge(ctx, c, with, image)
}

// obstacle returns the document that refused the claim. It writes to leave word, and where only
// a write tells the time (through a mongos). Otherwise it only reads.
func (s *Steps[R, X]) obstacle(ctx context.Context, c *Claim, with Contender[R]) (Image[R], error) {
	blind := s.Base.Kind().Router && !s.Base.Now().Fresh
	if c.Want <= 0 && !blind {
		return with.Look(ctx)
	}
	image, err := with.Word(ctx)
	if err == nil && !image.Found() { // the key is free by now, or the document is gone or a stranger's
		return with.Look(ctx)
	}
	return image, err
}

// LeaveWord writes into a document that a process waits, if the claim says so, and the server's
// time. The lock's time is then a sample, and the claim's session has moved on. More may be
// written together with the word.
func (s *Steps[R, X]) LeaveWord(ctx context.Context, c *Claim, document bson.D, more ...bson.E) (Image[R], error) {
	update := bson.D{s.Lock.Timed()}
	if c.Want > 0 {
		_, until := s.Base.Now().Expiry(c.Want)
		word := append(bson.D{{Key: s.Lock.Path(FieldWanted), Value: mongobase.Date(until)}}, more...)
		update = bson.D{{Key: "$max", Value: word}, s.Lock.Timed()}
	}
	image, err := s.Send(ctx, Word, s.Base.Soft, document, update, mongobase.After)
	if err == nil {
		c.Attempt.Answered(image.Reply, false)
	}
	return image, err
}

// judge takes a key over if no holder is live in the image of its document.
func (s *Steps[R, X]) judge(ctx context.Context, c *Claim, with Contender[R], image Image[R]) (store.Grant, error) {
	if err := s.turnedAway(ctx, c, with, image.Record); err != nil {
		return store.Grant{}, err
	}
	over, err := s.Judge(ctx, c, image)
	if err != nil {
		return store.Grant{}, c.Attempt.NotApplied(err)
	}
	if len(over) < len(image.Record.Marks()) {
		return store.Grant{}, s.Refuse(ctx, c, with, image.Record)
	}
	reply, t, err := with.TakeOver(ctx, image.Record)
	if err != nil {
		return store.Grant{}, mongobase.RefusedOrUnknown(reply.Reply, err)
	}
	if reply.Found() {
		return s.Grant(ctx, c, reply, t)
	}
	c.Attempt.Answered(reply.Reply, true) // lost to a quicker claim
	image, err = with.Look(ctx)
	switch {
	case err != nil:
		return store.Grant{}, c.Attempt.NotApplied(err)
	case !image.Found():
		return store.Grant{}, s.Settle(ctx, c, with, with.Absent(nil))
	}
	if err := s.turnedAway(ctx, c, with, image.Record); err != nil {
		return store.Grant{}, err
	}
	return store.Grant{}, s.Refuse(ctx, c, with, image.Record)
}

// Judge tells which holders in the image of a document are over, by their IDs.
func (s *Steps[R, X]) Judge(ctx context.Context, c *Claim, image Image[R]) (map[string]bool, error) {
	over, err := s.Base.Judge(ctx, c.Key, image.Record.Marks(), image.Sent, image.Seen(), s.DrawnFor(c.Ref, image))
	if err != nil || s.Sessions == nil {
		return over, err
	}
	return s.judgeSessions(ctx, image.Record, over)
}

// Status returns what people are shown of a record, including when it will be known which of
// its holders are over.
func (s *Steps[R, X]) Status(key string, seen R) store.Status {
	status := seen.Status(key, s.Base.Present())
	marks := make(map[string]mongobase.Mark, len(status.Holders))
	for _, m := range seen.Marks() {
		marks[m.ID] = m
	}
	for i, h := range status.Holders {
		if m, ok := marks[h.ID]; ok {
			status.Holders[i].KnownBy = s.Base.KnownBy(key, m, status.Now)
			s.prolong(&status.Holders[i], status.Now)
		}
	}
	return status
}

// turnedAway answers a claim whose document is a stranger's, or has the claim's twin. It
// returns nil if it is neither.
func (s *Steps[R, X]) turnedAway(ctx context.Context, c *Claim, with Contender[R], seen R) error {
	if foreign := seen.Foreign(); foreign != nil {
		return s.Settle(ctx, c, with, foreign)
	}
	if _, landed := seen.Holder(c.ID); landed {
		return s.RefuseTwin(ctx, c, with)
	}
	return nil
}

// Refuse answers that the key was held, with what is there now. If the claim's word is not in
// the document, no wake-up would come: so the claimant is told that the key was free for a
// moment, which is true, and asks again.
func (s *Steps[R, X]) Refuse(ctx context.Context, c *Claim, with Contender[R], seen R) error {
	if c.Want > 0 && !seen.Worded(c.Claim, s.Base.Present()) {
		var nothing R
		seen = nothing
	}
	s.learn(ctx, seen)
	return s.Settle(ctx, c, with, &store.HeldError{Status: s.Status(c.Key, seen)})
}

// RefuseTwin removes the claim's own twin, which landed after the refusal. Its reply, and so
// its token, is lost.
func (s *Steps[R, X]) RefuseTwin(ctx context.Context, c *Claim, with Contender[R]) error {
	c.Attempt.Twin = true
	var nothing R
	return s.Refuse(ctx, c, with, nothing)
}

// Settle answers a refusal once it is certain. If the refused command may have a twin on its
// way, the twin is cleaned up first, in its own session, within this call. If that fails the
// outcome is unknown, and the engine's Undo goes on with it.
func (s *Steps[R, X]) Settle(ctx context.Context, c *Claim, with Contender[R], refusal error) error {
	if !c.Attempt.Twin {
		return refusal
	}
	wanted, err := with.CleanUp(ctx)
	if err != nil {
		return err
	}
	c.Attempt.Twin = false
	if wanted { // the engine is not told that the twin held the key for a moment
		_ = s.Feed.Notify(ctx, store.Notice{Topic: store.TopicLocks, Key: c.Key, Kind: store.KindFreed})
	}
	return refusal
}

// HandOver grants a claim that send has put in the place of a live holder. If send found no
// such holder, the document tells why.
func (s *Steps[R, X]) HandOver(ctx context.Context, from store.Ref, c *Claim, with Contender[R], send func(context.Context) (Image[R], Tenure, error)) (store.Grant, error) {
	image, t, err := send(ctx)
	if err != nil {
		return store.Grant{}, mongobase.RefusedOrUnknown(image.Reply, err)
	}
	if image.Found() {
		return s.Grant(ctx, c, image, t)
	}
	c.Attempt.Answered(image.Reply, true)
	seen, err := with.Look(ctx)
	if err != nil {
		return store.Grant{}, c.Attempt.NotApplied(err)
	}
	if _, landed := seen.Record.Holder(c.ID); landed {
		c.Attempt.Twin = true
	}
	return store.Grant{}, s.Settle(ctx, c, with, Why(seen, from.ID))
}
