// Package otellock makes OpenTelemetry spans and metrics of the operations of package mongolock
// and the packages built on it. It needs only the OpenTelemetry API.
//
//	telemetry, err := otellock.New()
//	client, err := mongolock.New(coll, mongolock.WithObserver(telemetry))
//
// One Observer is enough for a process: it takes any number of clients, schedulers, trees
// and locks on documents.
//
// A call that asks for a key is a span, and the part of it that waits is a span within it.
// The hold is a span of its own from the grant to the lease's end, beside the call's and
// linked to it: the caller's trace shows how long the key was held. Releases are within
// the hold. Renewals, which go on for as long as the lease is held and often renew many of
// them, are traces of their own, linked to the hold if there is one. So is the span of a
// leader's term, which has no end: the work gets a context without a span, and each span that it
// begins is the root of a trace. Contexts go down to
// the store: the spans of an instrumented MongoDB driver are within those of the operation
// that sent the command; those of a renewal are within the hold. A monitor of the driver counts
// the commands: [Observer.CommandMonitor].
//
// Its README has the table of all names. There is no semantic convention for locks
// yet; these names are made to become one.
package otellock

import (
	"context"
	"errors"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/mongolock/mongolock"
)

// Scope is the name of the instrumentation scope of all spans and metrics.
const Scope = "github.com/mongolock/mongolock/adapters/otel"

// The attributes.
const (
	AttrSystem     = attribute.Key("lock.system")     // the package: mongolock, doclock, schedule, leader, pathlock
	AttrOperation  = attribute.Key("lock.operation")  // a mongolock.Op
	AttrOutcome    = attribute.Key("lock.outcome")    // what mongolock.OutcomeOf says
	AttrKey        = attribute.Key("lock.key")        // of spans; of metrics by MetricKey alone
	AttrMode       = attribute.Key("lock.mode")       // exclusive, shared, permits; of spans
	AttrToken      = attribute.Key("lock.token")      // the fencing token; of spans
	AttrCount      = attribute.Key("lock.count")      // leases that were renewed; of spans
	AttrLossCause  = attribute.Key("lock.loss.cause") // max_hold, stalled, broken, lost
	AttrState      = attribute.Key("lock.state")      // held, unreleased; of documents: claimable, claimed, dead
	AttrJob        = attribute.Key("lock.job")        // of the metrics of Jobs
	AttrFeedState  = attribute.Key("lock.feed.state") // live, opening, idle, none
	AttrCollection = attribute.Key("lock.collection") // of commands: the collection of locks, or that of its wake-ups
	AttrCommand    = attribute.Key("lock.command")    // findAndModify, find, update, …
	AttrErrorType  = attribute.Key("error.type")      // the outcome, of spans that failed
)

// An Observer makes spans and metrics. It is safe for concurrent use.
type Observer struct {
	config
	tracer trace.Tracer
	meters
	sources
}

// An Option changes an Observer.
type Option interface{ apply(*config) error }

type option func(*config) error

func (o option) apply(c *config) error { return o(c) }

type config struct {
	tracers   trace.TracerProvider
	meters    metric.MeterProvider
	spanKey   func(mongolock.Operation) string // nil: the key itself
	metricKey func(mongolock.Operation) string
}

// WithTracerProvider sets where spans go, otel.GetTracerProvider() by default.
func WithTracerProvider(p trace.TracerProvider) Option {
	return option(func(c *config) error { c.tracers = p; return notNil("WithTracerProvider", p == nil) })
}

// WithMeterProvider sets where metrics go, otel.GetMeterProvider() by default.
func WithMeterProvider(p metric.MeterProvider) Option {
	return option(func(c *config) error { c.meters = p; return notNil("WithMeterProvider", p == nil) })
}

// SpanKey sets the attribute lock.key of spans to what name returns. An empty name leaves
// it out. By default it is the key itself. With SpanKey the status of a span that failed says
// only how (lock.outcome), because the text of an error names the key: so keys that name people stay out
// of traces.
func SpanKey(name func(mongolock.Operation) string) Option {
	return option(func(c *config) error { c.spanKey = name; return notNil("SpanKey", name == nil) })
}

// MetricKey adds the attribute lock.key to the metrics of acquisitions, waits, holds, lost leases,
// runs and missed due times, with the value that name returns. That should be one of few values,
// because each makes time series of its own. By default metrics have no key.
func MetricKey(name func(mongolock.Operation) string) Option {
	return option(func(c *config) error { c.metricKey = name; return notNil("MetricKey", name == nil) })
}

func notNil(option string, isNil bool) error {
	if isNil {
		return errors.New("otellock: " + option + "(nil): must not be nil")
	}
	return nil
}

// New makes an Observer. All options are checked together.
func New(opts ...Option) (*Observer, error) {
	conf := config{tracers: otel.GetTracerProvider(), meters: otel.GetMeterProvider()}
	var errs []error
	for _, o := range opts {
		if o == nil {
			errs = append(errs, errors.New("otellock: a nil Option"))
			continue
		}
		errs = append(errs, o.apply(&conf))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	o := &Observer{config: conf, tracer: conf.tracers.Tracer(Scope)}
	if err := o.measure(conf.meters.Meter(Scope)); err != nil {
		return nil, err
	}
	return o, nil
}

// Begin implements mongolock.Observer.
func (o *Observer) Begin(ctx context.Context, of mongolock.Operation) (context.Context, func(mongolock.Outcome)) {
	began := time.Now()
	if of.Op == mongolock.OpMiss {
		return ctx, func(out mongolock.Outcome) { o.ended(ctx, of, out, 0) }
	}
	ctx, span := o.start(ctx, of)
	if of.Op == mongolock.OpRun {
		o.runs.Add(ctx, 1, metric.WithAttributes(o.named(of)...))
	}
	return ctx, func(out mongolock.Outcome) {
		o.ended(ctx, of, out, time.Since(began))
		o.finish(span, of, out)
	}
}

// callerKey is the key of the span in which an acquisition was requested.
type callerKey struct{}

// start begins the span of an operation.
func (o *Observer) start(ctx context.Context, of mongolock.Operation) (context.Context, trace.Span) {
	opts := []trace.SpanStartOption{trace.WithAttributes(o.attributes(of)...)}
	parent := trace.SpanFromContext(ctx)
	switch of.Op {
	case mongolock.OpAcquire, mongolock.OpTransfer:
		if _, within := ctx.Value(callerKey{}).(trace.Span); !within || of.Op == mongolock.OpAcquire {
			ctx = context.WithValue(ctx, callerKey{}, parent)
		}
	case mongolock.OpHold: // beside the acquisition, in the caller's trace
		opts = append(opts, link(parent)...)
		if caller, ok := ctx.Value(callerKey{}).(trace.Span); ok && caller.SpanContext().IsValid() {
			ctx = trace.ContextWithSpan(ctx, caller)
		} else {
			opts = append(opts, trace.WithNewRoot())
		}
	case mongolock.OpRenew: // a trace of its own
		opts = append(opts, link(parent)...)
		opts = append(opts, trace.WithNewRoot())
	case mongolock.OpRun:
		if of.Package == leaders { // likewise; and so is each span that the work begins in the term
			opts = append(opts, link(parent)...)
			_, span := o.tracer.Start(ctx, "lock run", append(opts, trace.WithNewRoot())...)
			return trace.ContextWithSpan(ctx, nil), span
		}
	}
	return o.tracer.Start(ctx, "lock "+string(of.Op), opts...)
}

// leaders is the package whose runs have no end.
const leaders = "leader"

func link(to trace.Span) []trace.SpanStartOption {
	if !to.SpanContext().IsValid() {
		return nil
	}
	return []trace.SpanStartOption{trace.WithLinks(trace.Link{SpanContext: to.SpanContext()})}
}

// attributes returns the attributes of a span that are known when it begins, so that a sampler
// sees them.
func (o *Observer) attributes(of mongolock.Operation) []attribute.KeyValue {
	all := []attribute.KeyValue{AttrSystem.String(of.Package), AttrOperation.String(string(of.Op))}
	if of.Mode != "" {
		all = append(all, AttrMode.String(string(of.Mode)))
	}
	key := of.Key
	if key != "" && o.spanKey != nil {
		key = o.spanKey(of)
	}
	if key != "" {
		all = append(all, AttrKey.String(strings.ToValidUTF8(key, "\uFFFD")))
	}
	return all
}

// finish ends a span. A decision of others, such as a refusal, is not an error of the span.
func (o *Observer) finish(span trace.Span, of mongolock.Operation, out mongolock.Outcome) {
	outcome := mongolock.OutcomeOf(out.Err)
	span.SetAttributes(AttrOutcome.String(outcome))
	if out.Token != 0 {
		span.SetAttributes(AttrToken.Int64(out.Token))
	}
	if of.Op == mongolock.OpRenew {
		span.SetAttributes(AttrCount.Int(out.Count))
	}
	switch outcome {
	case mongolock.OutcomeLost, mongolock.OutcomeUnknown, mongolock.OutcomeFailed:
		span.SetAttributes(AttrErrorType.String(outcome))
		text := outcome
		if o.spanKey == nil {
			text = strings.ToValidUTF8(out.Err.Error(), "\uFFFD") // an exporter would refuse other text, with all that it was sent with
		}
		span.SetStatus(codes.Error, text)
	}
	span.End()
}
