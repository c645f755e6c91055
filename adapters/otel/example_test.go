package otellock_test

import (
	"context"
	"fmt"
	"log"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/mongolock/mongolock"
	otellock "github.com/mongolock/mongolock/adapters/otel"
	"github.com/mongolock/mongolock/schedule"
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

// Any process can watch the jobs of all, and the backlog of an outbox; here there is neither.
func ExampleObserver_Jobs() {
	reader := metric.NewManualReader() // in a program: an exporter to a collector
	telemetry, err := otellock.New(otellock.WithMeterProvider(metric.NewMeterProvider(metric.WithReader(reader))))
	if err != nil {
		log.Panic(err)
	}
	jobs, err := schedule.InMemory() // on MongoDB: schedule.New(db.Collection("jobs"))
	if err != nil {
		log.Panic(err)
	}
	if _, err := telemetry.Jobs("jobs", jobs); err != nil {
		log.Panic(err)
	}
	var data metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &data); err != nil {
		log.Panic(err)
	}
	for _, m := range data.ScopeMetrics[0].Metrics {
		fmt.Println(m.Name)
	}
	// Output: lock.signal.unread
}
