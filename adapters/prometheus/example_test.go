package promlock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock"
	promlock "github.com/mongolock/mongolock/adapters/prometheus"
	"github.com/mongolock/mongolock/doclock"
	"github.com/mongolock/mongolock/schedule"
	"github.com/mongolock/mongolock/store/memstore"
)

// show prints the metrics of a registry whose names begin so.
func show(registry *prometheus.Registry, prefix string) {
	families, err := registry.Gather()
	if err != nil {
		log.Panic(err)
	}
	for _, f := range families {
		for _, m := range f.Metric {
			if strings.HasPrefix(f.GetName(), prefix) {
				fmt.Println(f.GetName(), m.GetGauge().GetValue())
			}
		}
	}
}

func ExampleNew() {
	metrics, err := promlock.New()
	if err != nil {
		log.Panic(err)
	}
	registry := prometheus.NewRegistry() // or prometheus.MustRegister(metrics)
	registry.MustRegister(metrics)
	client, err := mongolock.NewWithStore(memstore.New(), mongolock.WithObserver(metrics)) // on MongoDB: mongolock.New(coll, …)
	if err != nil {
		log.Panic(err)
	}
	defer client.Close()

	lease, err := client.Acquire(context.Background(), "nightly-report")
	if err != nil {
		log.Panic(err)
	}
	show(registry, "mongolock_leases_held")
	if err := lease.Release(); err != nil {
		log.Panic(err)
	}
	show(registry, "mongolock_leases_held")
	// Output:
	// mongolock_leases_held 1
	// mongolock_leases_held 0
}

// A monitor of the driver counts the commands that locks send; here to a database that is not there.
func ExampleCollector_CommandMonitor() {
	metrics, err := promlock.New()
	if err != nil {
		log.Panic(err)
	}
	conn, err := mongo.Connect(options.Client().ApplyURI("mongodb://127.0.0.1:1").SetMonitor(metrics.CommandMonitor("locks")))
	if err != nil {
		log.Panic(err)
	}
	defer func() { _ = conn.Disconnect(context.Background()) }()
	client, err := mongolock.New(conn.Database("app").Collection("locks"), mongolock.WithObserver(metrics))
	if err != nil {
		log.Panic(err)
	}
	fmt.Println(client.Close())
	// Output: <nil>
}

// Any process can watch the jobs of all; here none has run so far.
func ExampleJobs() {
	jobs, err := schedule.InMemory() // on MongoDB: schedule.New(db.Collection("jobs"))
	if err != nil {
		log.Panic(err)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(promlock.Jobs("jobs", jobs))
	show(registry, "mongolock_")
	// Output: mongolock_signal_unread 0
}

// The outbox of this example does not answer, which is told too.
func ExampleDocuments() {
	registry := prometheus.NewRegistry()
	registry.MustRegister(promlock.Documents("outbox", func(context.Context) (doclock.Backlog, error) {
		return doclock.Backlog{}, errors.New("no primary") // outbox.Backlog(ctx, filter, "created")
	}))
	show(registry, "mongolock_")
	// Output: mongolock_signal_unread 1
}
