package history

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Mutexes returns the keys that were only ever asked for exclusively: an outside judge can compare
// what was believed of them with a mutex.
func (h *History) Mutexes() []string {
	exclusive := map[string]bool{}
	for _, e := range h.Events {
		if e.Kind == Called || e.Kind == Granted {
			was, seen := exclusive[e.Key]
			exclusive[e.Key] = (was || !seen) && e.Mode == Mode{}
		}
	}
	var keys []string
	for key, is := range exclusive {
		if is && key != "" {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// ExportEDN writes a file for each mutex of a history into a directory, and returns how many.
func (h *History) ExportEDN(dir string) (files int, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return 0, err
	}
	for _, key := range h.Mutexes() {
		var text bytes.Buffer
		h.writeEDN(&text, key)
		if err := os.WriteFile(filepath.Join(dir, url.PathEscape(key)+".edn"), text.Bytes(), 0o644); err != nil {
			return files, err
		}
		files++
	}
	return files, nil
}

// A step is one line of a file: an operation begins or ends.
type step struct {
	at    time.Duration
	order int // of one moment: what ends a lease comes before what begins one
	event int // that it tells of
	lease int
	text  string
}

func (s step) compare(o step) int {
	return cmp.Or(cmp.Compare(s.at, o.at), cmp.Compare(s.order, o.order), cmp.Compare(s.event, o.event))
}

// writeEDN writes what the clients believed of one key, as operations of a mutex, in the form that
// Knossos reads: an acquisition begins with its call and ends with its grant, and a release is the
// moment at which its holder believed the lease to be over. Calls that granted nothing are left
// out: their callers believe nothing. A holder whose end no event tells never releases.
func (h *History) writeEDN(out io.Writer, key string) {
	const ends, asks, begins = 0, 1, 2
	var steps []step
	calls, leases := map[int]time.Duration{}, h.byID()
	for i, e := range h.Events {
		switch {
		case e.Key != key:
		case e.Kind == Called:
			calls[e.Op] = e.At
		case e.Kind == Granted:
			began, called := calls[e.Op]
			if !called {
				began = e.At
			}
			steps = append(steps, step{began, asks, i, i, ":type :invoke :f :acquire"}, step{e.At, begins, i, i, ":type :ok :f :acquire"})
			end, order, last := leases[e.ID].ends(), ends, i
			if end <= e.At { // it ended as it was granted
				end, order, last = e.At, begins, i+lastOf(e.ID, e.At, h.Events[i:])
			}
			if end == never {
				steps = append(steps, step{e.At, begins, i, i, ":type :invoke :f :release"})
				continue
			}
			steps = append(steps, step{end, order, last, i, ":type :invoke :f :release"}, step{end, order, last, i, ":type :ok :f :release"})
		}
	}
	slices.SortStableFunc(steps, step.compare)
	for _, s := range steps {
		fmt.Fprintf(out, "{:process %d %s :value nil :time %d}\n", s.lease, s.text, s.at)
	}
}

// lastOf returns the last event of a lease at that moment.
func lastOf(id string, at time.Duration, events []Event) (last int) {
	for i, e := range events {
		if e.At > at {
			break
		}
		if e.ID == id {
			last = i
		}
	}
	return last
}
