package pathlock_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/mongolock/mongolock/internal/test/kit/pace"
	"github.com/mongolock/mongolock/pathlock"
)

var dataClaims = []claim{
	{"ATreeThatNobodyHasWrittenToIsEmpty", func(e *env) {
		if all := e.locks(); len(all) != 0 {
			e.Errorf("it has %v", all)
		}
		if err := e.tree.Release(e.ctx(), "urn:uuid:none"); !errors.Is(err, pathlock.ErrUnknownToken) {
			e.Errorf("release in it: %v", err)
		}
	}},
	{"PathsAndOwnersAreReturnedByteForByte", func(e *env) {
		for _, path := range []string{"/", "/a", "/a.b/$c", "/f#1", "/f?1", "/f%20", "/ü/€/🔒", "/a b/ ", "/" + strings.Repeat("x", 4000), "/<&>\u2028\"\\"} {
			r := ask(path)
			r.Mode, r.Depth = pathlock.Shared, pathlock.Infinity
			r.Owner = []byte("<owner>\x00\xff\xfe \u2028</owner>\n")
			l := e.lock(r)
			found := e.find(l.Token)
			if found.Path != path || found.Mode != r.Mode || found.Depth != r.Depth || !bytes.Equal(found.Owner, r.Owner) || found.Timeout != time.Minute {
				e.Errorf("%q came back as %+v", path, found)
			}
			if !found.Since.Equal(l.Since) || !found.ExpireAt.Equal(l.ExpireAt) {
				e.Errorf("%q is since %v until %v, and was since %v until %v", path, found.Since, found.ExpireAt, l.Since, l.ExpireAt)
			}
		}
	}},
	{"TimeoutsAreReturnedUnchanged", func(e *env) {
		for path, timeout := range map[string]time.Duration{"/least": pathlock.MinTimeout, "/most": pathlock.MaxTimeout, "/none": pathlock.Infinite, "/odd": 12345678901} {
			r := ask(path)
			r.Timeouts = []time.Duration{timeout}
			l := e.lock(r)
			if l.Timeout != timeout || l.ExpireAt.IsZero() != (timeout == pathlock.Infinite) {
				e.Errorf("%v was granted as %+v", timeout, l)
			}
			if timeout == pathlock.MinTimeout {
				continue // may be over by now
			}
			if found := e.find(l.Token); found.Timeout != timeout || !found.ExpireAt.Equal(l.ExpireAt) {
				e.Errorf("%v came back as %+v", timeout, found)
			}
		}
	}},
	{"TreesDoNotAffectEachOther", func(e *env) {
		l := e.lock(ask("/a"))
		other := e.called(e.name + "/other")
		if _, err := other.Lock(e.ctx(), ask("/a")); err != nil {
			e.Errorf("a lock in another tree is in the way: %v", err)
		}
		leave, cancel := context.WithTimeout(e.ctx(), pace.Of(short)) // a word that it waits
		defer cancel()
		if _, err := e.tree.LockWait(leave, ask("/a")); !errors.Is(err, pathlock.ErrConflict) {
			e.Error(err)
		}
		for _, token := range []string{l.Token, e.name} {
			_, short := other.Refresh(e.ctx(), token, time.Second)
			_, again := other.Refresh(e.ctx(), token)
			_, long := other.Refresh(e.ctx(), token, time.Hour)
			began := time.Now()
			for op, err := range map[string]error{"short": short, "again": again, "long": long, "release": other.Release(e.ctx(), token)} {
				if !errors.Is(err, pathlock.ErrUnknownToken) {
					e.Errorf("%q by a token %q of another tree: %v", op, token, err)
				}
			}
			if took := time.Since(began); took > bound/4 {
				e.Errorf("a release by a token of another tree took %v", took)
			}
		}
		if found := e.find(l.Token); found.Timeout != l.Timeout || !found.ExpireAt.Equal(l.ExpireAt) {
			e.Errorf("%+v became %+v", l, found)
		}
	}},
	{"AnswersBelongToTheCaller", func(e *env) {
		r := ask("/a")
		r.Owner = []byte("mine")
		l := e.lock(r)
		r.Owner[0], l.Owner[0] = 'x', 'x'
		e.find(l.Token).Owner[0] = 'x'
		if got := string(e.find(l.Token).Owner); got != "mine" {
			e.Errorf("a change of the caller's copy made the owner %q", got)
		}
	}},
}

var strangerClaims = []claim{
	{"ARecordOfAnotherProgramIsNeverChanged", func(e *env) {
		for range 8 {
			name := e.name + newSuffix()
			intact, err := e.place.(Stranger).Foreign(name)
			if err != nil {
				e.Fatal(err)
			}
			tree := e.called(name)
			_, lock := tree.Lock(e.ctx(), ask("/a"))
			_, refresh := tree.Refresh(e.ctx(), "urn:uuid:none")
			_, locks := tree.Locks(e.ctx())
			for op, err := range map[string]error{"Lock": lock, "Refresh": refresh, "Locks": locks, "Release": tree.Release(e.ctx(), "urn:uuid:none"), "Confirm": tree.Confirm(e.ctx(), nil, pathlock.Modify("/a"))} {
				if !errors.Is(err, pathlock.ErrForeign) {
					e.Errorf("%s answered %v", op, err)
				}
			}
			if err := intact(); err != nil {
				e.Error(err)
			}
		}
	}},
}

var limitClaims = []claim{
	{"ATreeThatGrowsTooLargeRefusesNewLocksOnly", func(e *env) {
		r := ask("/a")
		r.Mode, r.Owner = pathlock.Shared, make([]byte, 16<<10)
		r.Timeouts = []time.Duration{pathlock.Infinite}
		last := e.lock(r)
		e.fill(last)
		for n := 0; ; n++ {
			l, err := e.tree.Lock(e.ctx(), r)
			if errors.Is(err, pathlock.ErrTooLarge) {
				break
			}
			if err != nil || n > 2 {
				e.Fatalf("after %d locks in a full tree: %v", n, err)
			}
			last = l
		}
		if _, err := e.tree.Refresh(e.ctx(), last.Token); err != nil {
			e.Errorf("a lock that is there cannot be refreshed any more: %v", err)
		}
		if err := e.tree.Release(e.ctx(), last.Token); err != nil {
			e.Errorf("nor released: %v", err)
		}
		r.Owner = nil
		if _, err := e.tree.Lock(e.ctx(), r); err != nil {
			e.Errorf("and in its place there is no room: %v", err)
		}
	}},
}

// fill adds copies of a lock until the tree takes no more: many at a time while there is
// room, then fewer.
func (e *env) fill(l pathlock.Lock) {
	e.Helper()
	full := false
	for many, had := 16, 0; many > 0; {
		_, err := e.documents().Update(e.ctx(), e.name, func(d *pathlock.Document, _ pathlock.Clock) {
			for i := range many {
				l.Token = fmt.Sprintf("urn:uuid:%d", had+i)
				d.Put(l)
			}
		})
		switch {
		case errors.Is(err, pathlock.ErrTooLarge):
			full = true
			many /= 2
		case err != nil:
			e.Fatalf("%d more beside %d: %v", many, had, err)
		default:
			if had += many; had > 100_000 {
				e.Fatalf("%d locks of %d bytes each are not too many", had, len(l.Owner))
			}
			if !full {
				many *= 2
			}
		}
	}
}
