package otellock_test

import (
	"context"
	"fmt"
	"log"
	"strings"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/mongolock/mongolock"
	otellock "github.com/mongolock/mongolock/adapters/otel"
	"github.com/mongolock/mongolock/store/memstore"
)

func ExampleNew() {
	spans := tracetest.NewInMemoryExporter() // in a program: an exporter to a collector
	tracers := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	telemetry, err := otellock.New(otellock.WithTracerProvider(tracers))
	if err != nil {
		log.Panic(err)
	}
	client, err := mongolock.NewWithStore(memstore.New(), mongolock.WithObserver(telemetry)) // on MongoDB: mongolock.New(coll, …)
	if err != nil {
		log.Panic(err)
	}
	defer client.Close()

	ctx, request := tracers.Tracer("program").Start(context.Background(), "POST /report")
	err = mongolock.Do(ctx, client, "nightly-report", func(context.Context, *mongolock.Lease) error { return nil })
	if err != nil {
		log.Panic(err)
	}
	request.End()
	for _, s := range spans.GetSpans() {
		fmt.Println(s.Name)
	}
	// Output:
	// lock acquire
	// lock hold
	// lock release
	// POST /report
}

func ExampleWithTracerProvider() {
	_, err := otellock.New(otellock.WithTracerProvider(sdktrace.NewTracerProvider()))
	fmt.Println(err)
	// Output: <nil>
}

func ExampleWithMeterProvider() {
	_, err := otellock.New(otellock.WithMeterProvider(metric.NewMeterProvider()))
	fmt.Println(err)
	// Output: <nil>
}

// kind is the part of a key before its first colon.
func kind(of mongolock.Operation) string {
	kind, _, _ := strings.Cut(of.Key, ":")
	return kind
}

// Keys that name people stay out of traces.
func ExampleSpanKey() {
	_, err := otellock.New(otellock.SpanKey(kind))
	fmt.Println(kind(mongolock.Operation{Key: "user:jane@example.com"}), err)
	// Output: user <nil>
}

func ExampleMetricKey() {
	_, err := otellock.New(otellock.MetricKey(kind))
	fmt.Println(kind(mongolock.Operation{Key: "order:4711"}), err)
	// Output: order <nil>
}

// A monitor of the driver counts the commands that locks send; here to a database that is not there.
func ExampleObserver_CommandMonitor() {
	telemetry, err := otellock.New()
	if err != nil {
		log.Panic(err)
	}
	conn, err := mongo.Connect(options.Client().ApplyURI("mongodb://127.0.0.1:1").SetMonitor(telemetry.CommandMonitor("locks")))
	if err != nil {
		log.Panic(err)
	}
	defer func() { _ = conn.Disconnect(context.Background()) }()
	client, err := mongolock.New(conn.Database("app").Collection("locks"), mongolock.WithObserver(telemetry))
	if err != nil {
		log.Panic(err)
	}
	fmt.Println(client.Close())
	// Output: <nil>
}
