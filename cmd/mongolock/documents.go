package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"strconv"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/doclock"
)

// A documentsCmd is `mongolock documents`.
type documentsCmd struct {
	Documents string `arg:"" name:"collection" help:"The collection of the documents."`
	Field     string `help:"The field that has the lock (default: lock)." default:"lock" placeholder:"NAME"`
	All       bool   `help:"Also list documents whose holder has run out." xor:"which"`
	Dead      bool   `help:"List the documents that were set aside after too many attempts (doclock.MaxAttempts)." xor:"which"`
	Backlog   bool   `help:"Count the documents that a worker could claim, has, and was given too often, and show the oldest of the first." xor:"which"`
	Filter    string `help:"With --backlog: only these documents, as the workers claim them." placeholder:"JSON"`
	Came      string `help:"With --backlog: the field with the date on which a document came, or _id if that is an ObjectID." placeholder:"NAME"`

	filter bson.D
}

func (c *documentsCmd) check() error {
	errs := []error{checkName("COLLECTION", c.Documents, 255), forbidden("COLLECTION", c.Documents, "$\x00")}
	if !c.Backlog && c.Filter+c.Came != "" {
		errs = append(errs, exitf(exitUsage, "--filter and --came: need --backlog"))
	}
	if err := bson.UnmarshalExtJSON([]byte(cmp.Or(c.Filter, "{}")), false, &c.filter); err != nil {
		errs = append(errs, exitf(exitUsage, "--filter: %s", sentence(err)))
	}
	return errors.Join(errs...)
}

// Run lists locked documents.
func (c *documentsCmd) Run(a *app) error {
	locks, err := a.collection("locks")
	if err != nil {
		return err
	}
	coll := locks.Database().Collection(c.Documents)
	docs, err := doclock.New[bson.Raw](coll, doclock.Field(c.Field), doclock.WithLogger(a.logger()))
	if err != nil {
		return exitf(exitUsage, "--field: %s", reason(err))
	}
	a.atEnd(func() { _ = docs.Close() }) // it holds nothing
	if c.Backlog {
		return c.backlog(a, coll, docs)
	}
	if c.Dead {
		p := a.table(coll, "_id", "attempts", "set aside at")
		return each(p, docs.Dead(a.ctx, bson.D{}), func(d doclock.Dead[bson.Raw]) error {
			v := deadView{extended(d.ID), d.Attempts, d.At.UTC()}
			return p.row(v, string(v.ID), strconv.Itoa(v.Attempts), v.At.Format(time.RFC3339))
		})
	}
	p := a.table(coll, "_id", "mode", "owner", "held for", "state", "waiters", "note")
	return each(p, docs.List(a.ctx), func(s mongolock.Status) error {
		v := viewOf(s)
		return p.key(v, c.All, docView{idOf(s.Key), v})
	})
}

// A backlogView says whether workers keep up.
type backlogView struct {
	Claimable int       `json:"claimable"`
	Claimed   int       `json:"claimed"`
	Dead      int       `json:"dead"`
	Oldest    time.Time `json:"oldest,omitzero"`
	Age       float64   `json:"ageSeconds"`
	Now       time.Time `json:"now"`
}

func (c *documentsCmd) backlog(a *app, coll *mongo.Collection, docs *doclock.Locks[bson.Raw]) error {
	b, err := docs.Backlog(a.ctx, c.filter, c.Came)
	if err != nil && !errors.Is(err, doclock.ErrDecode) {
		return err
	}
	if b.Claimable+b.Claimed+b.Dead == 0 && !a.missing(coll) {
		a.say("%s.%s has no such document", coll.Database().Name(), coll.Name())
	}
	oldest := ""
	if !b.Oldest.IsZero() {
		oldest = span(b.Age())
	}
	p := a.printer("claimable", "oldest", "claimed", "dead")
	v := backlogView{b.Claimable, b.Claimed, b.Dead, b.Oldest.UTC(), b.Age().Seconds(), b.Now.UTC()}
	return errors.Join(p.row(v, strconv.Itoa(b.Claimable), oldest, strconv.Itoa(b.Claimed), strconv.Itoa(b.Dead)), p.flush(), err)
}

// A deadView is a document that was set aside.
type deadView struct {
	ID       json.RawMessage `json:"_id"`
	Attempts int             `json:"attempts"`
	At       time.Time       `json:"at"`
}

// extended returns an _id in the driver's JSON.
func extended(id bson.RawValue) json.RawMessage {
	text, err := bson.MarshalExtJSON(bson.D{{Key: "_id", Value: id}}, false, false)
	if err != nil {
		return []byte("null")
	}
	return idOf(string(text))
}

// A docView is a locked document: its _id in the driver's JSON, and its lock.
type docView struct {
	ID json.RawMessage `json:"_id"`
	keyView
}

// idOf returns the _id in a key of package doclock, which is its JSON.
func idOf(key string) json.RawMessage {
	var doc struct {
		ID json.RawMessage `json:"_id"`
	}
	if err := json.Unmarshal([]byte(key), &doc); err == nil && doc.ID != nil {
		return doc.ID
	}
	if json.Valid([]byte(key)) {
		return []byte(key)
	}
	quoted, err := json.Marshal(key)
	if err != nil {
		return []byte("null")
	}
	return quoted
}
