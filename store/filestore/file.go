package filestore

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/mongolock/mongolock/internal/hostclock"
	"github.com/mongolock/mongolock/internal/hostfile"
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/record"
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

// A file is the content of a key's file, in JSON. A key without a file has an empty one.
type file struct {
	Mongolock int    `json:"mongolock"` // the version of this shape; marks the file as ours
	Name      string `json:"key"`
	hostclock.Stamp
	record.Key

	text []byte    // as it was read; nil if there is no file
	now  time.Time // the present, by the record's time
}

// edit makes one step of a key: no other call writes its file meanwhile. What decide leaves of the key
// is kept, also with a refusal: its claim may join or leave the line, and dates may have been moved. It
// is not kept if the answer matches store.ErrNotApplied.
func edit[T any](ctx context.Context, s *Store, r store.Ref, decide func(k *record.Key, now time.Time) (T, error)) (none T, err error) {
	if err := cmp.Or(ended(ctx), record.Check(r.Mode)); err != nil {
		return none, err
	}
	name := hostfile.Name(r.Key)
	// All keys whose file names begin alike share a lock: lock files are never removed, and
	// there may be many keys over time.
	lock, err := s.files.Lock(ctx, "keys-"+name[:2])
	if err != nil {
		return none, fault(err, false)
	}
	defer lock.Unlock()
	f, err := s.read(r.Key)
	if err != nil {
		return none, err
	}
	holders := len(f.Holders)
	answer, refusal := decide(&f.Key, f.now)
	var applied bool
	switch {
	case errors.Is(refusal, store.ErrNotApplied), f.Empty() && f.text == nil, refusal != nil && !f.changed():
		return answer, refusal
	case f.Empty():
		applied, err = lock.Remove(name)
	default:
		f.At = f.now
		text, failed := json.Marshal(f)
		if failed != nil {
			return none, fault(failed, false)
		}
		if len(f.Holders) > holders && len(text) > maxRecord {
			return none, fmt.Errorf("%w: %q would have %d bytes", store.ErrTooLarge, r.Key, len(text))
		}
		applied, err = lock.Write(name, text)
	}
	if err != nil {
		return none, fault(err, applied)
	}
	return answer, refusal
}

// changed reports whether the file has other content.
func (f *file) changed() bool {
	text, _ := json.Marshal(f)
	return !bytes.Equal(text, f.text)
}

// read returns the record of a key. If that is foreign, it returns an empty one with the error.
func (s *Store) read(key string) (*file, error) {
	text, err := s.files.Read(hostfile.Name(key))
	if err != nil {
		return nil, fault(err, false)
	}
	f := &file{Mongolock: version, Name: key}
	if text == nil {
		s.tell(f)
		return f, nil
	}
	f, err = s.parse(text)
	if err == nil && f.Name != key {
		err = fmt.Errorf("%w: it belongs to the key %q", store.ErrForeign, f.Name)
	}
	if err != nil {
		return &file{now: s.clock.Wall()}, fmt.Errorf("%w (the file of the key %q)", err, key)
	}
	return f, nil
}

// parse decodes a record, and refuses content that this version did not write.
func (s *Store) parse(text []byte) (*file, error) {
	refuse := func(why string) (*file, error) { return nil, fmt.Errorf("%w: %s", store.ErrForeign, why) }
	f := &file{text: text}
	if err := json.Unmarshal(text, f); err != nil {
		return refuse("not JSON of this package: " + err.Error())
	}
	if f.Mongolock != version || f.At.IsZero() {
		return refuse(fmt.Sprintf(`"mongolock" is %d, not %d, or "at" is missing: %v`, f.Mongolock, version, f.At))
	}
	if err := f.Verify(); err != nil {
		return refuse("damaged: " + err.Error())
	}
	s.tell(f)
	return f, nil
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
			return 0, fmt.Errorf("%w: the file %q is not of this package, or damaged (%w)", store.ErrForeign, tokenFile, store.ErrNotApplied)
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
