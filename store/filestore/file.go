package filestore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/mongolock/mongolock/internal/hostfile"
	"github.com/mongolock/mongolock/store"
)

const (
	version   = 1
	maxRecord = 8 << 20 // further holders are refused, as on MongoDB
	tokenFile = "tokens"

	// The first token of a directory is made from the seconds since 2020, so that tokens rise
	// even if the directory is emptied.
	tokenEpoch = 1577836800
	tokenShift = 32
)

// A change is what a step does to a key's file.
type change int

const (
	leave change = iota // nothing
	write               // replace it by the record
	admit               // the same, with one more holder, if there is room
	remove
)

// edit makes one step of a key: no other call writes its file meanwhile. If decide returns an
// error, that is the answer, whatever the step does to the file. Only a refusal comes with a
// change: its claim may join or leave the line. Dates that were moved are kept after any verdict.
func (s *Store) edit(ctx context.Context, key string, decide func(*record, time.Time) (change, error)) error {
	name := hostfile.Name(key)
	// All keys whose file names begin alike share a lock: lock files are never removed, and
	// there may be many keys over time.
	lock, err := s.files.Lock(ctx, "keys-"+name[:2])
	if err != nil {
		return fault(err, false)
	}
	defer lock.Unlock()
	rec, seen, err := s.read(key)
	if err != nil {
		return err
	}
	what, answer := decide(rec, seen.now)
	switch {
	case what == leave && seen.moved && (answer == nil || store.IsVerdict(answer)):
		what = write
	case what == leave, answer != nil && !errors.Is(answer, store.ErrHeld) && !errors.Is(answer, store.ErrModeMismatch):
		return answer
	}
	var applied bool
	if what == remove {
		applied, err = lock.Remove(name)
	} else {
		rec.At = seen.now
		text, failed := json.Marshal(rec)
		if failed != nil {
			return fault(failed, false)
		}
		if what == admit && len(text) > maxRecord && len(text) > seen.size {
			return fmt.Errorf("%w: %q would have %d bytes", store.ErrTooLarge, key, len(text))
		}
		applied, err = lock.Write(name, text)
	}
	if err != nil {
		return fault(err, applied)
	}
	return answer
}

// A reading holds what was found with a record.
type reading struct {
	now   time.Time // by the record's time
	moved bool      // the record's dates were moved, and its file has the old ones
	size  int       // of the file
}

// read returns the record of a key. A key without a file has an empty record.
func (s *Store) read(key string) (*record, reading, error) {
	text, err := s.files.Read(hostfile.Name(key))
	if err != nil {
		return nil, reading{}, fault(err, false)
	}
	rec := &record{Mongolock: version, Key: key}
	if text != nil {
		rec, err = parse(text)
		if err == nil && rec.Key != key {
			err = fmt.Errorf("%w: it belongs to the key %q", store.ErrForeign, rec.Key)
		}
		if err != nil {
			return nil, reading{now: s.clock.wall()}, fmt.Errorf("%w (the file of the key %q)", err, key)
		}
	}
	now, moved := s.clock.now(rec)
	return rec, reading{now, moved, len(text)}, nil
}

// parse decodes a record, and refuses content that this version did not write.
func parse(text []byte) (*record, error) {
	refuse := func(why string) (*record, error) { return nil, fmt.Errorf("%w: %s", store.ErrForeign, why) }
	var mark struct {
		Mongolock *int    `json:"mongolock"`
		Key       *string `json:"key"`
	}
	if err := json.Unmarshal(text, &mark); err != nil {
		return refuse("not JSON of this package: " + err.Error())
	}
	switch {
	case mark.Mongolock == nil || mark.Key == nil:
		return refuse(`no "mongolock" and "key" in it`)
	case *mark.Mongolock != version:
		return refuse(fmt.Sprintf(`"mongolock" is %d, not %d`, *mark.Mongolock, version))
	}
	rec := &record{}
	if err := json.Unmarshal(text, rec); err != nil {
		return refuse(err.Error())
	}
	if rec.Mode != store.Exclusive && rec.Mode != store.Shared && rec.Mode != store.Permits || rec.At.IsZero() {
		return refuse(fmt.Sprintf("damaged: mode %q, at %v", rec.Mode, rec.At))
	}
	for _, h := range rec.Holders {
		if h.ID == "" || h.ExpireAt.IsZero() {
			return refuse("damaged: a holder without ID or time")
		}
	}
	for _, w := range rec.Line {
		if w.Place == "" || w.Seen.IsZero() {
			return refuse("damaged: a waiter without place or time")
		}
	}
	return rec, nil
}

// tokens is the content of the file that keeps the last token.
type tokens struct {
	Mongolock int    `json:"mongolock"`
	Last      *int64 `json:"last"`
}

// draw returns a token greater than all before it, of all keys.
func (s *Store) draw(ctx context.Context, now time.Time) (int64, error) {
	lock, err := s.files.Lock(ctx, tokenFile)
	if err != nil {
		return 0, fault(err, false)
	}
	defer lock.Unlock()
	text, err := s.files.Read(tokenFile)
	if err != nil {
		return 0, fault(err, false)
	}
	token := max(1, now.Unix()-tokenEpoch) << tokenShift
	if text != nil {
		var t tokens
		if err := json.Unmarshal(text, &t); err != nil || t.Mongolock != version || t.Last == nil {
			return 0, fmt.Errorf("%w: the file %q is not of this package, or damaged", store.ErrForeign, tokenFile)
		}
		token = *t.Last + 1
	}
	text, err = json.Marshal(tokens{version, &token})
	if err != nil {
		return 0, fault(err, false)
	}
	// A failed write may have been applied; then one token is skipped.
	if _, err := lock.Write(tokenFile, text); err != nil {
		return 0, fault(err, false)
	}
	return token, nil
}

// fault wraps a file system's error, and marks it as not applied if it left no trace.
func fault(err error, applied bool) error {
	if applied {
		return fmt.Errorf("filestore: %w", err)
	}
	return fmt.Errorf("filestore: %w (%w)", err, store.ErrNotApplied)
}
