package fence

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"unicode"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// An UpdateOption changes one call of UpdateOne or UpdateByID.
type UpdateOption interface{ applyUpdate(*write) error }

// A ReplaceOption changes one call of ReplaceOne.
type ReplaceOption interface{ applyReplace(*write) error }

// An InsertOption changes one call of InsertOne.
type InsertOption interface{ applyInsert(*write) error }

// An UpsertOption changes a call that may create a document: UpdateOne, UpdateByID or
// ReplaceOne.
type UpsertOption interface {
	UpdateOption
	ReplaceOption
}

// An Option changes any call of this package.
type Option interface {
	UpdateOption
	ReplaceOption
	InsertOption
}

type (
	option        func(*write) error
	upsertOption  func(*write) error
	updateOption  func(*write) error
	replaceOption func(*write) error
	insertOption  func(*write) error
)

func (o option) applyUpdate(w *write) error         { return o(w) }
func (o option) applyReplace(w *write) error        { return o(w) }
func (o option) applyInsert(w *write) error         { return o(w) }
func (o upsertOption) applyUpdate(w *write) error   { return o(w) }
func (o upsertOption) applyReplace(w *write) error  { return o(w) }
func (o updateOption) applyUpdate(w *write) error   { return o(w) }
func (o replaceOption) applyReplace(w *write) error { return o(w) }
func (o insertOption) applyInsert(w *write) error   { return o(w) }

// Field names the field that holds the token, at the top level of the document:
// up to 128 bytes of letters, digits, _ and -. The default is _fence. All writers of a
// document must agree on it.
func Field(name string) Option {
	return option(func(w *write) error {
		w.field = name
		if !validField(name) {
			return fmt.Errorf("fence: Field(%q): must be 1 to 128 bytes of letters, digits, _ and -, and not _id", name)
		}
		return nil
	})
}

// Upsert creates the document if it does not exist. The filter, a bson.D, a map or a bson.Raw,
// must then name its _id by value: any other filter would not find a document that is fenced
// off, and the server would create a second one beside it. For the same reason an upsert takes no
// Collation; that of the collection is used.
func Upsert() UpsertOption {
	return upsertOption(func(w *write) error {
		w.update = append(w.update, options.UpdateOne().SetUpsert(true))
		w.replace = append(w.replace, options.Replace().SetUpsert(true))
		return nil
	})
}

// UpdateOptions passes options to the driver.
func UpdateOptions(opts ...options.Lister[options.UpdateOneOptions]) UpdateOption {
	return updateOption(func(w *write) error { w.update = append(w.update, opts...); return nil })
}

// ReplaceOptions passes options to the driver.
func ReplaceOptions(opts ...options.Lister[options.ReplaceOptions]) ReplaceOption {
	return replaceOption(func(w *write) error { w.replace = append(w.replace, opts...); return nil })
}

// InsertOptions passes options to the driver.
func InsertOptions(opts ...options.Lister[options.InsertOneOptions]) InsertOption {
	return insertOption(func(w *write) error { w.insert = append(w.insert, opts...); return nil })
}

// A write is one call of this package.
type write struct {
	coll  *mongo.Collection
	token int64
	field string

	update  []options.Lister[options.UpdateOneOptions]
	replace []options.Lister[options.ReplaceOptions]
	insert  []options.Lister[options.InsertOneOptions]

	upsert    bool
	collation *options.Collation
	let, sort any
}

// newWrite applies the options and checks everything but the documents.
func newWrite[O any](coll *mongo.Collection, token int64, opts []O, apply func(O, *write) error) (*write, error) {
	w := &write{coll: coll, token: token, field: "_fence"}
	var errs []error
	if coll == nil {
		errs = append(errs, errors.New("fence: the collection is nil"))
	}
	if token <= 0 {
		errs = append(errs, fmt.Errorf("fence: token %d: must be greater than zero", token))
	}
	for _, o := range opts {
		if any(o) == nil {
			errs = append(errs, errors.New("fence: a nil option"))
			continue
		}
		errs = append(errs, apply(o, w))
	}
	errs = append(errs, w.readDriverOptions())
	return w, errors.Join(errs...)
}

// readDriverOptions reads those of the driver's options that matter to this package.
func (w *write) readDriverOptions() error {
	u, err := merged(w.update)
	if err != nil {
		return fmt.Errorf("fence: UpdateOptions: %w", err)
	}
	r, err := merged(w.replace)
	if err != nil {
		return fmt.Errorf("fence: ReplaceOptions: %w", err)
	}
	w.collation = u.Collation
	if w.collation == nil {
		w.collation = r.Collation
	}
	if w.let = u.Let; w.let == nil {
		w.let = r.Let
	}
	if w.sort = u.Sort; w.sort == nil {
		w.sort = r.Sort
	}
	w.upsert = u.Upsert != nil && *u.Upsert || r.Upsert != nil && *r.Upsert
	if w.upsert && w.collation != nil {
		return errors.New("fence: an upsert takes no collation: by it a second document could be inserted beside one that is fenced off")
	}
	return nil
}

// merged applies a call's options as the driver does: the last one wins, nil is
// ignored.
func merged[T any](opts []options.Lister[T]) (all T, err error) {
	for _, o := range opts {
		if o == nil || reflect.ValueOf(o).Kind() == reflect.Pointer && reflect.ValueOf(o).IsNil() {
			continue
		}
		for _, set := range o.List() {
			if set == nil {
				continue
			}
			if err := set(&all); err != nil {
				return all, err
			}
		}
	}
	return all, nil
}

func validField(name string) bool {
	bad := func(r rune) bool {
		return r == unicode.ReplacementChar || r != '_' && r != '-' && !unicode.IsLetter(r) && !unicode.IsDigit(r)
	}
	return name != "" && name != "_id" && len(name) <= 128 && !strings.ContainsFunc(name, bad)
}
