package mongolock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/memstore"
)

// report is a job that only one process may do at a time.
func report(ctx context.Context) error {
	fmt.Println("writing the report")
	return ctx.Err()
}

// connect returns the client of one process on s. It logs nothing; by default a client
// logs to slog.Default().
func connect(s store.Store, opts ...mongolock.ClientOption) *mongolock.Client {
	quiet := mongolock.WithLogger(slog.New(slog.DiscardHandler))
	client, err := mongolock.NewWithStore(s, append([]mongolock.ClientOption{quiet}, opts...)...)
	if err != nil {
		log.Fatal(err)
	}
	return client
}

// check stands for the error handling of your program.
func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// mustAcquire acquires a key in examples that are about what comes afterwards.
func mustAcquire(l mongolock.Locker, key string, opts ...mongolock.AcquireOption) *mongolock.Lease {
	lease, err := l.Acquire(context.Background(), key, opts...)
	check(err)
	return lease
}

// Every host starts the nightly job, and one of them runs it.
func Example() {
	ctx := context.Background()
	client, err := mongolock.NewWithStore(memstore.New())
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	ran, err := mongolock.TryDo(ctx, client, "nightly-report", func(ctx context.Context, lease *mongolock.Lease) error {
		return report(ctx) // ctx ends when the lease does
	})
	switch {
	case err != nil:
		log.Print("nightly report: ", err)
	case !ran:
		fmt.Println("another host is at it")
	}
	// Output: writing the report
}

// Do waits for the key, runs the function and releases the key.
func ExampleDo() {
	ctx := context.Background()
	client := connect(memstore.New())
	defer client.Close()

	err := mongolock.Do(ctx, client, "nightly-report", func(ctx context.Context, lease *mongolock.Lease) error {
		fmt.Println("holding", lease.Key())
		return errors.New("out of paper")
	})
	fmt.Println("error:", err)
	// Output:
	// holding nightly-report
	// error: out of paper
}

// TryDo leaves the work to the process that already holds the key.
func ExampleTryDo() {
	ctx := context.Background()
	s := memstore.New()
	hostA, hostB := connect(s), connect(s)
	defer hostA.Close()
	defer hostB.Close()

	work := func(context.Context, *mongolock.Lease) error {
		ran, err := mongolock.TryDo(ctx, hostB, "nightly-report", func(ctx context.Context, _ *mongolock.Lease) error {
			return report(ctx)
		})
		fmt.Println("host B ran:", ran, err)
		return nil
	}
	ran, err := mongolock.TryDo(ctx, hostA, "nightly-report", work)
	fmt.Println("host A ran:", ran, err)
	// Output:
	// host B ran: false <nil>
	// host A ran: true <nil>
}

// A process has one client for each store. The client's options apply to every lease that
// has none of its own.
func ExampleNewWithStore() {
	client, err := mongolock.NewWithStore(memstore.New(), mongolock.TTL(time.Minute), mongolock.WithOwner("host-a/billing"))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	_, err = mongolock.NewWithStore(memstore.New(), mongolock.TTL(0), mongolock.WithOwner(""))
	fmt.Println(err) // the error names every invalid option
	// Output:
	// mongolock: TTL(0s): must be between 100ms and a year (8760h0m0s)
	// WithOwner is empty
}

// The locks live in a collection of their own. Every process opens the same one.
func ExampleNew() {
	ctx := context.Background()
	db, err := mongo.Connect(options.Client().ApplyURI("mongodb://localhost:27017"))
	if err != nil {
		log.Fatal(err)
	}
	defer db.Disconnect(ctx)

	client, err := mongolock.New(db.Database("mongolock").Collection("locks"), mongolock.WithOwner("billing on host-a"))
	check(err)
	defer client.Close() // before the connection
	fmt.Println("ready, and nothing is sent yet")
	// Output: ready, and nothing is sent yet
}

// A caller can tell these outcomes apart, and do something about each.
func Example_errors() {
	explain := func(err error) string {
		switch {
		case err == nil:
			return "done"
		case errors.Is(err, mongolock.ErrLost):
			return "the lease ended during the job: another process may be doing it now"
		case errors.Is(err, mongolock.ErrHeld):
			return "others have the key: come again later"
		case errors.Is(err, mongolock.ErrClosed):
			return "this process is stopping"
		case errors.Is(err, mongolock.ErrOutcomeUnknown):
			return "the database did not answer: the key may stay taken for a while"
		case errors.Is(err, mongolock.ErrForeign):
			return "something else is stored under the key: take another"
		}
		return "the job's own error, or the database's: " + err.Error()
	}

	s := memstore.New()
	s.Put("settings", "a document of another program")
	client := connect(s)
	lease := mustAcquire(client, "taken")
	job := func(context.Context, *mongolock.Lease) error { return nil }

	_, err := client.TryAcquire(context.Background(), "taken")
	fmt.Println(explain(err))
	fmt.Println(explain(mongolock.Do(context.Background(), client, "settings", job)))
	fmt.Println(explain(mongolock.Do(context.Background(), client, "free", job)))
	lease.Release()
	client.Close()
	fmt.Println(explain(mongolock.Do(context.Background(), client, "free", job)))
	// Output:
	// others have the key: come again later
	// something else is stored under the key: take another
	// done
	// this process is stopping
}

// TryAcquire asks once. A refusal says who holds the key, since when, what for, and for
// how long unless the holder renews.
func ExampleClient_TryAcquire() {
	ctx := context.Background()
	s := memstore.New()
	hostA := connect(s, mongolock.WithOwner("host-a/17"), mongolock.TTL(10*time.Minute))
	hostB := connect(s, mongolock.WithOwner("host-b/4"))
	defer hostA.Close()
	defer hostB.Close()

	lease, err := hostA.TryAcquire(ctx, "nightly-report", mongolock.Note("run of May 3"))
	check(err)
	defer lease.Release()

	_, err = hostB.TryAcquire(ctx, "nightly-report")
	var held *mongolock.HeldError
	if errors.As(err, &held) {
		holder := held.Holders[0]
		fmt.Printf("%s is held by %s (%s) for %v\n", held.Key, holder.Owner, holder.Note, held.Left().Round(time.Minute))
	}
	// Output: nightly-report is held by host-a/17 (run of May 3) for 10m0s
}

// Break takes a key from a holder that hangs. With enough grace the holder is
// told before the next one gets the key. With a negative grace it is only told.
func ExampleClient_Break() {
	ctx := context.Background()
	s := memstore.New()
	hostA, operator := connect(s, mongolock.WithOwner("host-a/17")), connect(s)
	defer hostA.Close()
	defer operator.Close()

	lease, err := hostA.Acquire(ctx, "nightly-report")
	check(err)
	defer lease.Release()
	broken, err := operator.Break(ctx, "nightly-report", "hangs since Monday", -1)
	check(err)
	fmt.Println("broke the lease of", broken[0].Owner)

	_ = lease.Renew(ctx) // the client does this by itself every third of the TTL
	fmt.Println(lease.Err())
	fmt.Println(errors.Is(lease.Err(), mongolock.ErrBroken), errors.Is(lease.Err(), mongolock.ErrLost))
	// Output:
	// broke the lease of host-a/17
	// mongolock: lease is lost: broken: hangs since Monday
	// true true
}

// Shutdown lets the holders finish: it cancels their contexts and waits for them.
func ExampleClient_Shutdown() {
	client := connect(memstore.New())
	working := make(chan struct{})
	go mongolock.Do(context.Background(), client, "queue-reader", func(ctx context.Context, _ *mongolock.Lease) error {
		close(working)
		<-ctx.Done()
		fmt.Println("reader: finishing the last message;", context.Cause(ctx))
		return nil
	})
	<-working

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	err := client.Shutdown(ctx)
	fmt.Println("main: shut down,", err)
	// Output:
	// reader: finishing the last message; mongolock: client is closed
	// main: shut down, <nil>
}

// An application may send notices of its own over the feed of a client's store.
func ExampleClient_Feed() {
	client, err := mongolock.NewWithStore(memstore.New())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	for notice, err := range client.Feed().Watch(context.Background(), store.Audience{Topics: []string{"prices"}}) {
		if notice == (store.Notice{}) { // the feed is live
			_ = client.Feed().Notify(context.Background(), store.Notice{Topic: "prices", Key: "EUR", Kind: "changed"})
			continue
		}
		fmt.Println(notice.Topic, notice.Key, notice.Kind, err)
		break
	}
	// Output: prices EUR changed <nil>
}

// With the token the resource itself can refuse a holder that comes too late.
func ExampleLease_Token() {
	client := connect(memstore.New())
	defer client.Close()

	var highest int64 // kept with the resource
	write := func(token int64) error {
		if token < highest {
			return errors.New("refused: a later holder was here")
		}
		highest = token
		return nil
	}

	late := mustAcquire(client, "account-7")
	late.Release() // the database considers it ended; the holder may be asleep
	next := mustAcquire(client, "account-7")
	defer next.Release()
	fmt.Println("next:", write(next.Token()))
	fmt.Println("late:", write(late.Token()))
	// Output:
	// next: <nil>
	// late: refused: a later holder was here
}

// Work on the lease's context stops with the lease. The cause says why.
func ExampleLease_Context() {
	s := memstore.New()
	client := connect(s)
	defer client.Close()

	lease := mustAcquire(client, "nightly-report")
	ctx := lease.Context(context.Background())
	fmt.Println(ctx.Err())

	s.Delete("nightly-report") // an operator deletes the record
	_ = lease.Renew(ctx)       // the client does this by itself every third of the TTL
	fmt.Println(ctx.Err())
	fmt.Println(context.Cause(ctx))
	// Output:
	// <nil>
	// context canceled
	// mongolock: lease is lost: no longer in the store
}

// Detach leaves the key taken, for the process that resumes the ticket within the TTL.
func ExampleLease_Detach() {
	ctx := context.Background()
	client := connect(memstore.New())
	defer client.Close()

	lease := mustAcquire(client, "order-4711")
	ticket, err := lease.Detach(ctx)
	check(err)
	fmt.Println(lease.Err())
	_, err = client.TryAcquire(ctx, "order-4711")
	fmt.Println("held:", errors.Is(err, mongolock.ErrHeld))

	resumed, err := client.Resume(ctx, ticket)
	check(err)
	fmt.Println("given back:", resumed.Release())
	// Output:
	// mongolock: lease was detached
	// held: true
	// given back: <nil>
}

// A job that gets on may take as long as it likes; one that hangs loses its lock.
func ExampleMaxStall() {
	ctx := context.Background()
	client := connect(memstore.New())
	defer client.Close()

	copyAll := func(ctx context.Context, lease *mongolock.Lease) error {
		for _, file := range []string{"a", "b"} {
			fmt.Println("copied", file)
			lease.Progress()
		}
		<-ctx.Done() // and then the disk hangs
		return ctx.Err()
	}
	err := mongolock.Do(ctx, client, "backup", copyAll, mongolock.MaxStall(10*time.Millisecond))
	fmt.Println(errors.Is(err, mongolock.ErrStalled), errors.Is(err, mongolock.ErrLost))
	// Output:
	// copied a
	// copied b
	// true true
}

// A job takes a second, and every host starts it by a timer. If the timers are up to a
// minute apart, each host would run the job. MinHold keeps the key taken until the last
// timer has fired.
func ExampleMinHold() {
	ctx := context.Background()
	s := memstore.New()
	hostA, hostB := connect(s), connect(s)
	defer hostA.Close()
	defer hostB.Close()

	run := func(client *mongolock.Client) bool {
		job := func(context.Context, *mongolock.Lease) error { return nil }
		ran, err := mongolock.TryDo(ctx, client, "nightly-report", job, mongolock.MinHold(5*time.Minute))
		check(err)
		return ran
	}
	fmt.Println(run(hostA), run(hostB))
	// Output: true false
}

// A batch gives way to others between two pieces, and goes on later.
func ExampleYielding() {
	store := memstore.New()
	batch, urgent := connect(store), connect(store)
	defer batch.Close()
	defer urgent.Close()

	lease := mustAcquire(batch, "index", mongolock.Yielding())
	done := make(chan error)
	go func() { done <- mustAcquire(urgent, "index").Release() }()
	for {
		select {
		case <-lease.Wanted():
			fmt.Println("making room after some pieces:", lease.Release())
		case <-time.After(time.Millisecond): // your work on a piece
			continue
		}
		break
	}
	fmt.Println(<-done)
	// Output:
	// making room after some pieces: <nil>
	// <nil>
}

// Many processes may read the catalogue at once. A process that rebuilds it holds the key
// alone.
func ExampleShared() {
	ctx := context.Background()
	s := memstore.New()
	client := connect(s)
	defer client.Close()

	one := mustAcquire(client, "catalogue", mongolock.Shared())
	two := mustAcquire(client, "catalogue", mongolock.Shared())
	_, err := client.TryAcquire(ctx, "catalogue")
	fmt.Println("a writer beside readers:", errors.Is(err, mongolock.ErrHeld))

	one.Release()
	two.Release()
	writer := mustAcquire(client, "catalogue")
	defer writer.Release()
	_, err = client.TryAcquire(ctx, "catalogue", mongolock.Shared())
	fmt.Println("a reader beside a writer:", errors.Is(err, mongolock.ErrHeld))
	// Output:
	// a writer beside readers: true
	// a reader beside a writer: true
}

// Renderings may use 20 GB in all, and those of one tenant 3.
func ExampleWeight() {
	ctx := context.Background()
	client := connect(memstore.New())
	defer client.Close()

	render := func(tenant string, gigabytes int) error {
		memory := mongolock.Weight(gigabytes)
		_, err := mongolock.AcquireAll(ctx, client, []string{tenant, "~ all"},
			mongolock.For(tenant, mongolock.OneOf(3), memory), mongolock.For("~ all", mongolock.OneOf(20), memory),
			mongolock.MaxWait(10*time.Millisecond))
		return err
	}
	fmt.Println(render("anna", 2))
	fmt.Println(errors.Is(render("anna", 2), mongolock.ErrHeld))
	fmt.Println(render("ben", 3))
	all, err := client.Inspect(ctx, "~ all")
	fmt.Printf("%d of 20 taken: %v\n", all.Taken(), err)
	// Output:
	// <nil>
	// true
	// <nil>
	// 5 of 20 taken: <nil>
}

// The mail server allows two connections, from any number of processes.
func ExampleOneOf() {
	ctx := context.Background()
	client := connect(memstore.New())
	defer client.Close()

	for range 2 {
		permit := mustAcquire(client, "smtp", mongolock.OneOf(2))
		defer permit.Release()
	}
	_, err := client.TryAcquire(ctx, "smtp", mongolock.OneOf(2))
	fmt.Println("a third:", errors.Is(err, mongolock.ErrHeld))

	_, err = client.TryAcquire(ctx, "smtp", mongolock.Shared())
	fmt.Println(err)
	// Output:
	// a third: true
	// mongolock: "smtp" is in use as permits, not as shared
}

// A transfer needs both accounts. AcquireAll asks for them in a fixed order, so two
// transfers that name the accounts in opposite order do not deadlock.
func ExampleAcquireAll() {
	ctx := context.Background()
	client := connect(memstore.New())
	defer client.Close()

	accounts, err := mongolock.AcquireAll(ctx, client, []string{"account/7", "account/3"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer accounts.Release()
	for _, lease := range accounts {
		fmt.Println(lease.Key())
	}

	_, err = mongolock.AcquireAll(ctx, client, []string{"account/3", "account/3"})
	fmt.Println(err)
	// Output:
	// account/7
	// account/3
	// mongolock: AcquireAll: the key "account/3" is given twice
}

// Inspect shows all holders of a shared key, and who waits for it.
func ExampleClient_Inspect_shared() {
	ctx := context.Background()
	s := memstore.New()
	client := connect(s, mongolock.WithOwner("host-a/17"))
	defer client.Close()
	lease := mustAcquire(client, "catalogue", mongolock.Shared(), mongolock.Note("search"))
	defer lease.Release()
	waiting := store.Claim{Ref: store.Ref{Key: "catalogue", ID: "writer", Mode: store.Exclusive}, TTL: 1e9, Place: store.NewPlace(store.Exclusive, 1, 1, "")}
	_, _ = s.Acquire(ctx, waiting)

	status, err := client.Inspect(ctx, "catalogue")
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, holder := range status.Holders {
		fmt.Println(status.Mode, "by", holder.Owner, "for", holder.Note)
	}
	for _, waiter := range status.Line {
		mode, _ := waiter.Place.Mode()
		fmt.Println(mode, "wanted")
	}
	// Output:
	// shared by host-a/17 for search
	// exclusive wanted
}

// metrics counts operations by their outcome, and those that are under way. A bridge to a
// metrics system needs no more than this.
type metrics struct {
	mu       sync.Mutex
	ended    map[string]int
	underWay map[mongolock.Op]int
	longest  map[mongolock.Op]time.Duration
}

func newMetrics() *metrics {
	return &metrics{
		ended:    make(map[string]int),
		underWay: make(map[mongolock.Op]int),
		longest:  make(map[mongolock.Op]time.Duration),
	}
}

func (m *metrics) Begin(ctx context.Context, of mongolock.Operation) (context.Context, func(mongolock.Outcome)) {
	begun := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.underWay[of.Op]++
	return ctx, func(out mongolock.Outcome) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.underWay[of.Op]--
		m.ended[string(of.Op)+" "+mongolock.OutcomeOf(out.Err)]++
		m.longest[of.Op] = max(m.longest[of.Op], time.Since(begun))
	}
}

// An Observer can feed metrics.
func ExampleWithObserver() {
	ctx := context.Background()
	m := newMetrics()
	client := connect(memstore.New(), mongolock.WithObserver(m))
	defer client.Close()

	lease := mustAcquire(client, "nightly-report")
	fmt.Println("held now:", m.underWay[mongolock.OpHold])
	_, _ = client.TryAcquire(ctx, "nightly-report")
	lease.Release()
	fmt.Println("held now:", m.underWay[mongolock.OpHold])

	for _, label := range slices.Sorted(maps.Keys(m.ended)) {
		fmt.Println(label, m.ended[label])
	}
	// Output:
	// held now: 1
	// held now: 0
	// acquire granted 1
	// acquire held 1
	// hold released 1
	// release granted 1
}
