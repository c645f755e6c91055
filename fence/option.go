package fence

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unicode"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// An Option changes one write.
type Option interface{ apply(*write) error }

type option func(*write) error

func (o option) apply(w *write) error { return o(w) }

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

// Upsert makes UpdateOne, UpdateByID and ReplaceOne create the document if it does
// not exist. The filter, a bson.D, a map or a bson.Raw, must then name its _id by
// value: any other filter would not find a document that is fenced off, and the server
// would create a second one beside it.
func Upsert() Option {
	return option(func(w *write) error {
		w.update = append(w.update, options.UpdateOne().SetUpsert(true))
		w.replace = append(w.replace, options.Replace().SetUpsert(true))
		return w.only("Upsert", updating, replacing)
	})
}

// UpdateOptions passes options to the driver, for UpdateOne and UpdateByID.
func UpdateOptions(opts ...options.Lister[options.UpdateOneOptions]) Option {
	return option(func(w *write) error {
		w.update = append(w.update, opts...)
		return w.only("UpdateOptions", updating)
	})
}

// ReplaceOptions passes options to the driver, for ReplaceOne.
func ReplaceOptions(opts ...options.Lister[options.ReplaceOptions]) Option {
	return option(func(w *write) error {
		w.replace = append(w.replace, opts...)
		return w.only("ReplaceOptions", replacing)
	})
}

// InsertOptions passes options to the driver, for InsertOne.
func InsertOptions(opts ...options.Lister[options.InsertOneOptions]) Option {
	return option(func(w *write) error {
		w.insert = append(w.insert, opts...)
		return w.only("InsertOptions", inserting)
	})
}

// A write is one call of this package.
type write struct {
	kind  kind
	coll  *mongo.Collection
	token int64
	field string

	update  []options.Lister[options.UpdateOneOptions]
	replace []options.Lister[options.ReplaceOptions]
	insert  []options.Lister[options.InsertOneOptions]

	upsert    bool
	collation *options.Collation
}

type kind string

const (
	updating  kind = "UpdateOne"
	replacing kind = "ReplaceOne"
	inserting kind = "InsertOne"
)

// only returns an error if the call is not of one of these kinds.
func (w *write) only(name string, kinds ...kind) error {
	if slices.Contains(kinds, w.kind) {
		return nil
	}
	return fmt.Errorf("fence: %s: is not an option of %s", name, w.kind)
}

// newWrite applies the options and checks everything but the documents.
func newWrite(k kind, coll *mongo.Collection, token int64, opts []Option) (*write, error) {
	w := &write{kind: k, coll: coll, token: token, field: "_fence"}
	var errs []error
	if coll == nil {
		errs = append(errs, errors.New("fence: the collection is nil"))
	}
	if token <= 0 {
		errs = append(errs, fmt.Errorf("fence: token %d: must be greater than zero", token))
	}
	for _, o := range opts {
		if o == nil {
			errs = append(errs, errors.New("fence: a nil Option"))
			continue
		}
		errs = append(errs, o.apply(w))
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
	w.upsert = u.Upsert != nil && *u.Upsert || r.Upsert != nil && *r.Upsert
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
