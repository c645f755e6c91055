package fence

import (
	"errors"
	"fmt"
	"strings"
	"unicode"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// An Option changes how one write is made.
type Option func(*write)

// Field names the field that holds the token, at the top level of the document:
// letters, digits, _ and -. The default is _fence. All writers of a document must
// agree on it.
func Field(name string) Option { return func(w *write) { w.field = name } }

// Upsert makes UpdateOne, UpdateByID and ReplaceOne create the document if there
// is none. The filter, a bson.D, a map or a bson.Raw, must then name its _id by
// value: with any other filter a document that is fenced off would not be found
// and a second one made beside it.
func Upsert() Option {
	return func(w *write) {
		w.update = append(w.update, options.UpdateOne().SetUpsert(true))
		w.replace = append(w.replace, options.Replace().SetUpsert(true))
	}
}

// UpdateOptions hands options on to the driver, for UpdateOne and UpdateByID.
func UpdateOptions(opts ...options.Lister[options.UpdateOneOptions]) Option {
	return func(w *write) { w.update, w.forUpdate = append(w.update, opts...), true }
}

// ReplaceOptions hands options on to the driver, for ReplaceOne.
func ReplaceOptions(opts ...options.Lister[options.ReplaceOptions]) Option {
	return func(w *write) { w.replace, w.forReplace = append(w.replace, opts...), true }
}

// InsertOptions hands options on to the driver, for InsertOne.
func InsertOptions(opts ...options.Lister[options.InsertOneOptions]) Option {
	return func(w *write) { w.insert, w.forInsert = append(w.insert, opts...), true }
}

// A write is one call of this package.
type write struct {
	coll  *mongo.Collection
	token int64
	field string

	update  []options.Lister[options.UpdateOneOptions]
	replace []options.Lister[options.ReplaceOptions]
	insert  []options.Lister[options.InsertOneOptions]

	forUpdate, forReplace, forInsert bool // an option for that was given

	upsert    bool
	collation *options.Collation
}

type kind string

const (
	updating  kind = "UpdateOne"
	replacing kind = "ReplaceOne"
	inserting kind = "InsertOne"
)

func newWrite(k kind, coll *mongo.Collection, token int64, opts []Option) (*write, error) {
	w := &write{coll: coll, token: token, field: "_fence"}
	for _, o := range opts {
		if o == nil {
			return nil, errors.New("fence: an option is nil")
		}
		o(w)
	}
	switch {
	case coll == nil:
		return nil, errors.New("fence: the collection is nil")
	case token <= 0:
		return nil, fmt.Errorf("fence: token %d: tokens are greater than zero", token)
	case !validField(w.field):
		return nil, fmt.Errorf("fence: Field(%q): letters, digits, _ and - make a name, and _id is taken", w.field)
	case w.forUpdate && k != updating, w.forReplace && k != replacing, w.forInsert && k != inserting:
		return nil, fmt.Errorf("fence: an option for another call was given to %s", k)
	case k == inserting && len(w.update) > 0:
		return nil, errors.New("fence: Upsert was given to InsertOne")
	}
	return w, w.settle()
}

// settle reads from the driver's options what this package has to know.
func (w *write) settle() error {
	var u options.UpdateOneOptions
	var r options.ReplaceOptions
	for _, l := range w.update {
		for _, set := range list(l) {
			if err := set(&u); err != nil {
				return err
			}
		}
	}
	for _, l := range w.replace {
		for _, set := range list(l) {
			if err := set(&r); err != nil {
				return err
			}
		}
	}
	w.collation = u.Collation
	if w.collation == nil {
		w.collation = r.Collation
	}
	w.upsert = u.Upsert != nil && *u.Upsert || r.Upsert != nil && *r.Upsert
	return nil
}

func list[T any](l options.Lister[T]) []func(*T) error {
	if l == nil {
		return nil
	}
	return l.List()
}

func validField(name string) bool {
	bad := func(r rune) bool {
		return r == unicode.ReplacementChar || r != '_' && r != '-' && !unicode.IsLetter(r) && !unicode.IsDigit(r)
	}
	return name != "" && name != "_id" && len(name) <= 128 && !strings.ContainsFunc(name, bad)
}
