package main

import (
	"context"
	"encoding/json"
	"strconv"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock/doclock"
)

// A documentsCmd is `mongolock documents`.
type documentsCmd struct {
	Documents string `arg:"" name:"collection" help:"The collection of the documents."`
	Field     string `help:"The field that has the lock (default: lock)." default:"lock" placeholder:"NAME"`
	All       bool   `help:"Also list documents whose holder has run out." xor:"which"`
	Dead      bool   `help:"List the documents that were set aside after too many attempts (doclock.MaxAttempts)." xor:"which"`
}

// Run lists locked documents.
func (c *documentsCmd) Run(a *app) error {
	ctx := context.Background()
	d, err := a.reach(ctx)
	if err != nil {
		return err
	}
	defer d.close()
	coll := d.db.Collection(c.Documents)
	docs, err := doclock.New[bson.Raw](coll, doclock.Field(c.Field), doclock.WithLogger(a.logger()))
	if err != nil {
		return exitf(exitUsage, "--field: %s", reason(err))
	}
	defer docs.Close() //nolint:errcheck // it holds nothing
	if c.Dead {
		return dead(ctx, a, docs, coll)
	}
	p := a.printer("_id", "mode", "owner", "held for", "state", "waiters", "note")
	p.none = func() { a.nothing(ctx, coll) }
	list := &lsCmd{All: c.All}
	for s, err := range docs.List(ctx) {
		if err != nil {
			return err
		}
		v := viewOf(s)
		if p.asJSON {
			if v.Free && !c.All {
				continue
			}
			if err := p.row(docView{json.RawMessage(idOf(s.Key)), v}); err != nil {
				return err
			}
			continue
		}
		if err := list.one(p, v); err != nil {
			return err
		}
	}
	return p.flush()
}

// dead lists the documents that were set aside.
func dead(ctx context.Context, a *app, docs *doclock.Locks[bson.Raw], coll *mongo.Collection) error {
	p := a.printer("_id", "attempts", "set aside at")
	p.none = func() { a.nothing(ctx, coll) }
	for d, err := range docs.Dead(ctx, bson.D{}) {
		if err != nil {
			return err
		}
		id := json.RawMessage(extended(d.ID))
		v := struct {
			ID       json.RawMessage `json:"_id"`
			Attempts int             `json:"attempts"`
			At       time.Time       `json:"at"`
		}{id, d.Attempts, d.At.UTC()}
		if err := p.row(v, cell{shown(string(id)), bold}, cell{text: strconv.Itoa(d.Attempts)}, cell{text: d.At.UTC().Format(time.RFC3339)}); err != nil {
			return err
		}
	}
	return p.flush()
}

// extended returns an _id in the driver's JSON.
func extended(id bson.RawValue) []byte {
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
func idOf(key string) []byte {
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
