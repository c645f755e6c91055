package promlock

import (
	"context"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/event"
)

// CommandMonitor returns a monitor for the driver's client options, which counts the commands that
// are sent for these collections: what the locks cost the database. It also counts those for their
// wake-ups, whose collections end in ".wake". Without a name it counts all commands of the driver's client.
//
//	options.Client().ApplyURI(uri).SetMonitor(metrics.CommandMonitor("locks"))
//
// A driver's client takes one monitor. If you have another, let it call Started of this one.
func (c *Collector) CommandMonitor(collections ...string) *event.CommandMonitor {
	return &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		of := collection(e)
		if len(collections) == 0 || slices.Contains(collections, strings.TrimSuffix(of, ".wake")) {
			c.commands.WithLabelValues(of, e.CommandName).Inc()
		}
	}}
}

// collection returns the collection that a command is for, or "".
func collection(e *event.CommandStartedEvent) string {
	field := e.CommandName
	if field == "getMore" {
		field = "collection"
	}
	name, _ := e.Command.Lookup(field).StringValueOK()
	return name
}
