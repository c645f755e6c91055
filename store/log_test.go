package store_test

import (
	"bytes"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/mongolock/mongolock/store"
)

func TestNoLogShowsAnID(t *testing.T) {
	ref := store.Ref{Key: "nightly", ID: "SECRET-ID", Mode: store.Exclusive}
	holder := store.Holder{ID: "SECRET-ID", Owner: "app-1", ExpireAt: time.Unix(60, 0)}
	status := store.Status{Key: "nightly", Mode: store.Exclusive, Holders: []store.Holder{holder}, Now: time.Unix(30, 0)}
	for name, value := range map[string]any{
		"ref": ref, "claim": store.Claim{Ref: ref}, "renewal": store.Renewal{Ref: ref}, "ending": store.ReleaseRequest{Ref: ref},
		"holder": holder, "status": status, "held": &store.HeldError{Status: status},
	} {
		for _, handler := range []func(*bytes.Buffer) slog.Handler{
			func(b *bytes.Buffer) slog.Handler { return slog.NewJSONHandler(b, nil) },
			func(b *bytes.Buffer) slog.Handler { return slog.NewTextHandler(b, nil) },
		} {
			var out bytes.Buffer
			slog.New(handler(&out)).Info("seen", name, value)
			assert.NotContains(t, out.String(), "SECRET-ID", name)
			if name == "holder" || name == "status" {
				assert.Contains(t, out.String(), "app-1", name)
			} else {
				assert.Contains(t, out.String(), "nightly", name)
			}
		}
	}
}
