package engine

import (
	"context"
	"log/slog"
	"time"

	"github.com/mongolock/mongolock/store"
)

// Terms say what one acquisition asks for. They never change: an acquisition without options shares the terms of its
// client. Zero durations stand for none.
type Terms struct {
	TTL       time.Duration
	MaxHold   time.Duration
	MaxStall  time.Duration
	MaxWait   time.Duration
	MinHold   time.Duration
	Note      string
	NoRenewal bool
	Yields    bool
	Mode      store.Mode
	Limit     int // of permits; 1 for exclusive, 0 for shared
	Weight    int // how many of the permits; 0 stands for 1
}

// shares reports whether others may hold the key at the same time.
func (t *Terms) shares() bool { return t.Mode != store.Exclusive }

// A Config is what an Engine is told of its client.
type Config struct {
	Package  string // whose operations observers see
	Owner    string
	Logger   *slog.Logger
	Observer Observer      // nil: none
	Margin   time.Duration // negative: the default, which depends on the TTL
	NoFeed   bool

	Address   string        // at which this process hears notices
	Announces bool          // the store has a feed
	NewID     func() string // names an acquisition
}

const maxMargin = time.Second // of the default margin, otherwise a tenth of the TTL

// An Observer sees operations begin and end. The root package has those that users write.
type Observer interface {
	Begin(ctx context.Context, op Op, pkg, key string, mode store.Mode) (context.Context, func(Outcome))
}

// An Op is a kind of operation.
type Op string

// The operations of an Engine.
const (
	OpAcquire  Op = "acquire"
	OpWait     Op = "wait"
	OpHold     Op = "hold"
	OpRenew    Op = "renew"
	OpRelease  Op = "release"
	OpTransfer Op = "transfer"
)

// An Outcome is how an operation ended.
type Outcome struct {
	Err   error
	Token int64
	Count int
}
