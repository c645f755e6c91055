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
	maxRecord = 8 << 20 // as on MongoDB: further holders are refused
	tokenFile = "tokens"

	// Tokens begin at the time since 2020, in seconds, so that they rise even if
	// somebody empties the directory.
	tokenEpoch = 1577836800
	tokenShift = 32
)

// A change is what becomes of a key's file after a look at it.
type change int

const (
	leave  change = iota // as it is
	write                // as the record is now
	remove               // not any more
)

// edit makes one step of a key: nobody else reads or writes its file meanwhile. An
// error of decide is the answer, whatever becomes of the file (a refused claim may leave
// word); it comes with a change only if it is a verdict.
func (s *Store) edit(ctx context.Context, key string, decide func(*record, time.Time) (change, error)) error {
	name := hostfile.Name(key)
	// One lock for all files whose names begin alike: lock files are never removed, and
	// there may be many keys in time.
	unlock, err := s.files.Lock(ctx, "keys-"+name[:2])
	if err != nil {
		return fault(err, false)
	}
	defer unlock()
	rec, now, size, err := s.read(key)
	if err != nil {
		return err
	}
	what, verdict := decide(rec, now)
	applied := true
	switch {
	case verdict != nil && !isVerdict(verdict), what == leave:
		return verdict
	case what == write:
		rec.At = now
		text, failed := json.Marshal(rec)
		if failed != nil {
			return fault(failed, false)
		}
		if len(text) > maxRecord && len(text) > size && verdict == nil {
			return fmt.Errorf("%w: %q would have %d bytes", store.ErrTooLarge, key, len(text))
		}
		applied, err = s.files.Write(name, text)
	case what == remove:
		applied, err = s.files.Remove(name)
	}
	if err != nil {
		return fault(err, applied)
	}
	return verdict
}

// isVerdict tells a refusal, with which a word may be left, from a fault.
func isVerdict(err error) bool { return errors.Is(err, store.ErrHeld) }

// read is the record of a key, and the time: the host's, but never before the one at
// which the file was written. A key without a file has an empty record.
func (s *Store) read(key string) (rec *record, now time.Time, size int, err error) {
	text, err := s.files.Read(hostfile.Name(key))
	if err != nil {
		return nil, now, 0, fault(err, false)
	}
	now = s.clock().Round(0).UTC()
	if text == nil {
		return &record{Mongolock: version, Key: key}, now, 0, nil
	}
	rec, err = parse(text)
	if err == nil && rec.Key != key {
		err = fmt.Errorf("%w: it is that of the key %q", store.ErrForeign, rec.Key)
	}
	if err != nil {
		return nil, now, 0, fmt.Errorf("%w (the file of the key %q)", err, key)
	}
	return rec, later(now, rec.At), len(text), nil
}

// parse refuses what this version did not write.
func parse(text []byte) (*record, error) {
	refuse := func(why string) (*record, error) { return nil, fmt.Errorf("%w: %s", store.ErrForeign, why) }
	var mark struct {
		Mongolock *int    `json:"mongolock"`
		Key       *string `json:"key"`
	}
	if err := json.Unmarshal(text, &mark); err != nil {
		return refuse("not JSON of ours: " + err.Error())
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
		return refuse(fmt.Sprintf("in disorder: mode %q", rec.Mode))
	}
	for _, h := range rec.Holders {
		if h.ID == "" || h.ExpireAt.IsZero() {
			return refuse("in disorder: a holder without ID or time")
		}
	}
	return rec, nil
}

// The file of the last token.
type tokens struct {
	Mongolock int    `json:"mongolock"`
	Last      *int64 `json:"last"`
}

// draw is a token greater than all before it, of all keys.
func (s *Store) draw(ctx context.Context, now time.Time) (int64, error) {
	unlock, err := s.files.Lock(ctx, tokenFile)
	if err != nil {
		return 0, fault(err, false)
	}
	defer unlock()
	text, err := s.files.Read(tokenFile)
	if err != nil {
		return 0, fault(err, false)
	}
	token := max(1, now.Unix()-tokenEpoch) << tokenShift
	if text != nil {
		var t tokens
		if err := json.Unmarshal(text, &t); err != nil || t.Mongolock != version || t.Last == nil {
			return 0, fmt.Errorf("%w: the file %q is not of this package, or spoilt", store.ErrForeign, tokenFile)
		}
		token = *t.Last + 1
	}
	text, err = json.Marshal(tokens{version, &token})
	if err != nil {
		return 0, fault(err, false)
	}
	// A token that was written and not used is one that nobody gets.
	if _, err := s.files.Write(tokenFile, text); err != nil {
		return 0, fault(err, false)
	}
	return token, nil
}

// fault marks an error that left no trace.
func fault(err error, applied bool) error {
	if applied {
		return fmt.Errorf("filestore: %w", err)
	}
	return fmt.Errorf("filestore: %w (%w)", err, store.ErrNotApplied)
}
