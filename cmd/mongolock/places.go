package main

import (
	"context"
	"encoding/json"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/doclock"
	"github.com/mongolock/mongolock/pathlock"
)

// A pathsCmd is `mongolock paths`.
type pathsCmd struct {
	Tree   string `arg:"" help:"The tree's name."`
	Tokens bool   `help:"Show the locks' tokens: a token is as good as the lock."`
}

type pathView struct {
	Path     string         `json:"path"`
	Mode     pathlock.Mode  `json:"mode"`
	Depth    pathlock.Depth `json:"depth"`
	Owner    string         `json:"owner,omitempty"`
	Since    time.Time      `json:"since"`
	ExpireAt time.Time      `json:"expireAt,omitzero"` // none for a lock without end
	Left     float64        `json:"leftSeconds,omitempty"`
	Token    string         `json:"token,omitempty"`
}

// Run lists a tree's locks.
func (c *pathsCmd) Run(a *app) error {
	ctx := context.Background()
	d, err := a.reach(ctx)
	if err != nil {
		return err
	}
	defer d.close()
	storage, err := pathlock.OnMongo(d.collection(&a.connection, "locks"), pathlock.WithoutIndex(), pathlock.WithLogger(a.logger()))
	if err != nil {
		return err
	}
	tree, err := pathlock.New(storage, c.Tree)
	if err != nil {
		return exitf(exitUsage, "TREE: %s", reason(err))
	}
	defer tree.Close() //nolint:errcheck // it has only read
	locks, err := tree.Locks(ctx)
	if err != nil {
		return err
	}
	p := a.printer("path", "mode", "depth", "lease", "owner", "token")
	for _, l := range locks {
		v := pathView{Path: l.Path, Mode: l.Mode, Depth: l.Depth, Owner: string(l.Owner), Since: l.Since.UTC(), ExpireAt: l.ExpireAt.UTC()}
		left := cell{"without end", yellow}
		if l.Left != pathlock.Infinite {
			v.Left = l.Left.Seconds()
			left = cell{span(l.Left) + " left", green}
		} else {
			v.ExpireAt = time.Time{}
		}
		if c.Tokens {
			v.Token = l.Token
		}
		if err := p.row(v, cell{shown(v.Path), bold}, cell{text: string(v.Mode)}, cell{text: string(v.Depth)}, left, cell{text: shown(v.Owner)}, cell{text: v.Token}); err != nil {
			return err
		}
	}
	return p.flush()
}

// A docsCmd is `mongolock docs`.
type docsCmd struct {
	Documents string `arg:"" name:"collection" help:"The collection whose documents are locked."`
	Field     string `help:"The field that has the lock." default:"lock" placeholder:"NAME"`
	All       bool   `help:"Also documents whose holder has run out."`
}

// Run lists locked documents.
func (c *docsCmd) Run(a *app) error {
	ctx := context.Background()
	d, err := a.reach(ctx)
	if err != nil {
		return err
	}
	defer d.close()
	docs, err := doclock.New[bson.Raw](d.db.Collection(c.Documents), doclock.Field(c.Field), doclock.With(mongolock.WithLogger(a.logger())))
	if err != nil {
		return exitf(exitUsage, "--field: %s", reason(err))
	}
	defer docs.Close() //nolint:errcheck // it holds nothing
	p := a.printer("_id", "mode", "owner", "held for", "state", "waiters", "note")
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

// A docView is a locked document: its _id in the driver's JSON, and its lock.
type docView struct {
	ID json.RawMessage `json:"_id"`
	keyView
}

// idOf is the _id in a key of package doclock, which is its JSON.
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
