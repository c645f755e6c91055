package once

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/doclock"
	"github.com/mongolock/mongolock/internal/mongo/server"
)

// Look returns the record of a name. A name that was never run has an empty one, without an
// error.
func Look(ctx context.Context, coll *mongo.Collection, name string) (Record, error) {
	conf, err := newConfig("Look", coll, name, nil)
	l, err := open(coll, name, conf, err)
	if err != nil {
		return Record{}, err
	}
	defer l.locks.Close() //nolint:errcheck // it holds nothing
	d, err := l.look(ctx)
	if err != nil {
		return Record{}, err
	}
	if d == nil {
		return Record{Name: name}, nil
	}
	return l.judged(ctx, d)
}

// judged returns the record in a document. A run in it whose lock is gone has died, unless it has ended since
// the document was read.
func (l *ledger) judged(ctx context.Context, d *document) (Record, error) {
	last := len(d.Past) - 1
	if last < 0 || d.Past[last].Outcome != Running {
		return d.record(), nil
	}
	status, err := l.locks.Inspect(ctx, doclock.ID(l.name))
	switch {
	case err != nil:
		return Record{}, fmt.Errorf("once: %q: %w", l.name, err)
	case !status.Free():
		return d.record(), nil
	}
	now, err := l.look(ctx)
	if err != nil || now == nil {
		return Record{Name: l.name}, err
	}
	if now.outcomeOf(d.Past[last].Token) == Running {
		now.Past[len(now.Past)-1].Outcome = Died
	}
	return now.record(), nil
}

// List yields the records of a collection, by name. It passes over documents that are not of
// this package. An error ends it.
func List(ctx context.Context, coll *mongo.Collection) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		conf, err := newConfig("List", coll, "any", nil)
		l, err := open(coll, "any", conf, err)
		if err != nil {
			yield(Record{}, err)
			return
		}
		defer l.locks.Close() //nolint:errcheck // it holds nothing
		cursor, err := l.base.Committed.Find(server.Bare(ctx), bson.D{{Key: mark, Value: shape}}, options.Find().SetSort(bson.D{{Key: "_id", Value: 1}}))
		if err != nil {
			yield(Record{}, fmt.Errorf("once: list: %w", err))
			return
		}
		defer cursor.Close(context.WithoutCancel(ctx))
		for cursor.Next(ctx) {
			d, err := read(cursor.Current)
			var r Record
			if err == nil {
				l.name = d.Name
				r, err = l.judged(ctx, d)
			}
			if !yield(r, err) || err != nil {
				return
			}
		}
		if err := cursor.Err(); err != nil {
			yield(Record{}, fmt.Errorf("once: list: %w", err))
		}
	}
}

// Reset makes the next Do run the function again, even if the work is done. Who did that, when
// and why is added to the record. While a process runs the function, the error is a
// *mongolock.HeldError. For a name that was never run, the error is ErrNotFound.
func Reset(ctx context.Context, coll *mongo.Collection, name, reason string, opts ...Option) error {
	conf, err := newConfig("Reset", coll, name, opts)
	if strings.TrimSpace(reason) == "" {
		err = errors.Join(err, errors.New("once: Reset: the reason is empty"))
	}
	if conf.sum != "" {
		err = errors.Join(err, errors.New("once: Reset: Content: no content is run"))
	}
	l, err := open(coll, name, conf, err)
	if err != nil {
		return err
	}
	defer l.locks.Close() //nolint:errcheck // as in Do
	switch d, err := l.look(ctx); {
	case err != nil:
		return err
	case d == nil:
		return fmt.Errorf("once: %q: %w", name, ErrNotFound)
	}
	doc, err := l.locks.TryAcquire(ctx, doclock.ID(name))
	if err != nil {
		return err
	}
	defer doc.Release() //nolint:errcheck // as Close
	holder := doc.Holder()
	at := holder.Since.UTC()
	doc.Value.add(Entry{Number: doc.Value.Runs, Owner: holder.Owner, Token: doc.Lease().Token(), Began: at})
	doc.Value.end(Undone, at, errors.New(reason))
	return doc.SaveAndRelease(server.Bare(ctx))
}
