package chaos

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/internal/history"
	"github.com/mongolock/mongolock/internal/testserver"
)

var chaosFor = flag.Duration("chaos.for", 10*time.Second, "how long the nemesis works")

func TestMain(m *testing.M) {
	if text := os.Getenv(ordersVariable); text != "" {
		var o orders
		err := json.Unmarshal([]byte(text), &o)
		if err == nil {
			takeSafetiesOut(o)
			err = work(o)
		}
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	flag.Parse()
	os.Exit(m.Run())
}

const (
	processes = 3
	chaosTTL  = 2 * time.Second
)

func usual() orders {
	return orders{DB: "chaos", Users: 4, Keys: everything, TTL: chaosTTL, Margin: -1}
}

func TestNoChaosBreaksAPromise(t *testing.T) {
	testserver.URI(t, "crash", "stepdown")
	h, faults := run(t, usual(), *chaosFor, (*troop).torment)
	grants := grantsOf(h)
	total := 0
	for _, n := range grants {
		total += n
	}
	t.Logf("%v: %d grants, %v, %d events, faults %v", *chaosFor, total, grants, len(h.Events), faults)
	if found := h.Check(); len(found) > 0 {
		for _, v := range found {
			t.Error(v)
		}
		draw(t, h, found)
	}
	if least := int(*chaosFor / time.Second); total < least {
		t.Errorf("only %d grants: nothing was tried", total)
	}
	if *chaosFor < 30*time.Second {
		return
	}
	for _, way := range ways {
		if grants[way] == 0 {
			t.Errorf("no grant %s: that was not tried", way)
		}
	}
}

// The ways in which workers come by a lease.
var ways = []string{"alone", "as a reader", "with a permit", "of two keys together", "of the document"}

func grantsOf(h *history.History) map[string]int {
	n := map[string]int{}
	for _, e := range h.Events {
		switch {
		case e.Kind != history.Granted:
		case e.Note == together:
			n[ways[3]]++
		case e.Key == document:
			n[ways[4]]++
		case e.Limit > 0:
			n[ways[2]]++
		case e.Shared:
			n[ways[1]]++
		default:
			n[ways[0]]++
		}
	}
	return n
}

// run lets processes work under a nemesis, and reads what they believed.
func run(t *testing.T, o orders, long time.Duration, torment func(*troop, context.Context)) (*history.History, map[string]int) {
	tr := newTroop(t, o, processes)
	registers := watchRegisters(t, tr)
	ctx, cancel := context.WithTimeout(t.Context(), long)
	defer cancel()
	torment(tr, ctx)
	for _, m := range tr.members {
		tr.kill(m)
	}
	h := &history.History{TTL: o.TTL, Margin: o.TTL / 10, Blur: o.TTL/40 + time.Millisecond, NoDB: true}
	if o.Margin >= 0 {
		h.Margin = o.Margin
	}
	h.Events = append(readAll(t, tr.dir), registers()...)
	slices.SortStableFunc(h.Events, func(a, b history.Event) int { return cmp.Compare(a.At, b.At) })
	return h, tr.faults
}

// watchRegisters reads the fenced registers again and again, as the server has them.
func watchRegisters(t *testing.T, tr *troop) (stop func() []history.Event) {
	client, err := mongo.Connect(options.Client().ApplyURI(tr.server.URI).SetDirect(true).SetServerSelectionTimeout(time.Second))
	if err != nil {
		t.Fatal(err)
	}
	db := client.Database(tr.orders.DB)
	colls := map[string]*mongo.Collection{document: db.Collection("papers")}
	for _, key := range tr.orders.Keys {
		if key == document {
			continue
		}
		coll := db.Collection("registers")
		colls[key] = coll
		if _, err := coll.InsertOne(t.Context(), bson.D{{Key: "_id", Value: key}}); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	seen := make(chan []history.Event)
	go func() {
		var events []history.Event
		for ; ctx.Err() == nil; pause(ctx, 10*time.Millisecond) {
			for _, key := range tr.orders.Keys {
				within, done := context.WithTimeout(ctx, time.Second)
				doc, err := colls[key].FindOne(within, bson.D{{Key: "_id", Value: key}}).Raw()
				done()
				if token, ok := doc.Lookup("_fence").Int64OK(); err == nil && ok {
					events = append(events, history.Event{At: uptime(), Kind: history.Register, Key: key, Token: token})
				}
			}
		}
		seen <- events
	}()
	return func() []history.Event {
		cancel()
		events := <-seen
		_ = client.Disconnect(context.Background())
		return events
	}
}

// readAll reads the logs. A line that a kill cut short is none.
func readAll(t *testing.T, dir string) (events []history.Event) {
	names, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(text) {
			var e history.Event
			if json.Unmarshal(line, &e) == nil {
				events = append(events, e)
			}
		}
	}
	return events
}

func draw(t *testing.T, h *history.History, found []history.Violation) {
	name := filepath.Join(t.ArtifactDir(), "chaos.svg")
	file, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := h.Draw(file, "chaos", found); err != nil {
		t.Fatal(err)
	}
	t.Logf("drawn in %s (kept with -artifacts)", name)
}

// keyOf is the key in a ticket.
func keyOf(ticket string) string {
	_, body, _ := strings.Cut(ticket, ".")
	raw, _ := base64.RawURLEncoding.DecodeString(body)
	var t struct {
		Key string `json:"k"`
	}
	_ = json.Unmarshal(raw, &t)
	return t.Key
}
