package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"io/fs"
	"os"
	"testing"
	"time"

	"github.com/golang-migrate/migrate/v4/database"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/kit/pace"
	"github.com/mongolock/mongolock/internal/test/kit/testchild"
	"github.com/mongolock/mongolock/internal/test/kit/testserver"
	"github.com/mongolock/mongolock/once"
)

func TestMain(m *testing.M) {
	testchild.Main(m, testchild.Roles{"host": testchild.As(host), "doomed": testchild.As(doomed), "bare": testchild.As(bare)})
}

type order struct {
	DB   string
	Half int // the migration in the middle of which doomed is killed
}

// host is the program, when it starts.
func host(ctx context.Context, o order) error {
	fmt.Println("starts")
	fmt.Println(run(ctx, os.Getenv("MONGODB_URI"), o.DB))
	return nil
}

// doomed is a host that is killed in the middle of a migration: golang-migrate has written
// that it begins with it.
func doomed(ctx context.Context, o order) error {
	uri := os.Getenv("MONGODB_URI")
	conn, err := mongo.Connect(options.Client().ApplyURI(uri))
	if err != nil {
		return err
	}
	return start(ctx, conn, o.DB, func(ctx context.Context, _ once.Run) error {
		m, err := open(uri, o.DB)
		if err != nil {
			return err
		}
		if o.Half > 1 {
			if err := m.Steps(o.Half - 1); err != nil {
				return err
			}
		}
		driver, err := openDriver(o.DB, "x-advisory-locking", "false")
		if err != nil {
			return err
		}
		if err := driver.SetVersion(o.Half, true); err != nil {
			return err
		}
		fmt.Println("half-way")
		<-ctx.Done()
		return ctx.Err()
	}, once.With(mongolock.TTL(pace.Of(2*time.Second))))
}

// bare is a host that uses golang-migrate alone, and its lock.
func bare(ctx context.Context, o order) error {
	driver, err := openDriver(o.DB, "x-advisory-lock-timeout", "2") // which takes the lock for a moment
	if err == nil {
		err = driver.Lock()
	}
	fmt.Println(err)
	<-ctx.Done()
	return nil
}

// openDriver opens golang-migrate's driver alone.
func openDriver(db, option, value string) (database.Driver, error) {
	target, err := address(os.Getenv("MONGODB_URI"), db, option, value)
	if err != nil {
		return nil, err
	}
	return database.Open(target)
}

// shop is a database with an order in it.
func shop(t *testing.T) *mongo.Database {
	t.Helper()
	db := testserver.Client(t).Database("migrate_" + rand.Text()[:8])
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = db.Drop(ctx)
	})
	_, err := db.Collection("orders").InsertOne(t.Context(), bson.M{"_id": 1, "customer": "Ada", "total": 40})
	require.NoError(t, err)
	return db
}

// migrated checks that every migration was applied once.
func migrated(t *testing.T, db *mongo.Database) {
	t.Helper()
	var order struct{ Total int }
	require.NoError(t, db.Collection("orders").FindOne(t.Context(), bson.M{"_id": 1}).Decode(&order))
	assert.Equal(t, 43, order.Total)
	var counter struct{ Times int }
	require.NoError(t, db.Collection("counters").FindOne(t.Context(), bson.M{"_id": "migrated"}).Decode(&counter))
	assert.Equal(t, 1, counter.Times)
}

// outcomes is how the runs ended.
func outcomes(t *testing.T, db *mongo.Database) (all []once.Outcome) {
	t.Helper()
	for r, err := range once.List(t.Context(), db.Collection("once")) {
		require.NoError(t, err)
		for _, e := range r.Past {
			all = append(all, e.Outcome)
		}
	}
	return all
}

// answer is what a host says after it has started.
func answer(p *testchild.Process) string {
	for {
		if said := p.Says(); said != "starts" {
			return said
		}
	}
}

func TestHostsThatStartTogetherMigrateOnce(t *testing.T) {
	db := shop(t)
	var hosts []*testchild.Process
	for range 5 {
		hosts = append(hosts, testchild.Start(t, "host", order{DB: db.Name()}))
	}
	for _, h := range hosts {
		assert.Equal(t, "<nil>", answer(h))
	}
	migrated(t, db)
	assert.Equal(t, []once.Outcome{once.Succeeded}, outcomes(t, db))
}

func TestAHostThatIsKilledHalfWayIsTakenOver(t *testing.T) {
	for _, half := range []int{1, 2} {
		db := shop(t)
		killed := testchild.Start(t, "doomed", order{db.Name(), half})
		require.Equal(t, "half-way", killed.Says())
		var hosts []*testchild.Process
		for range 3 {
			h := testchild.Start(t, "host", order{DB: db.Name()})
			require.Equal(t, "starts", h.Says())
			hosts = append(hosts, h)
		}
		killed.Kill()
		for _, h := range hosts {
			assert.Equal(t, "<nil>", answer(h), "in migration %d", half)
		}
		migrated(t, db)
		assert.Equal(t, []once.Outcome{once.Died, once.Succeeded}, outcomes(t, db))
	}
}

// A newer program may have died in a migration that this one does not have: it must not begin again
// from the first.
func TestAMigrationThatIsNotOursIsNotSetBack(t *testing.T) {
	for version, want := range map[uint]int{1: database.NilVersion, 2: 1} {
		last, err := before(version)
		require.NoError(t, err)
		assert.Equal(t, want, last)
	}
	_, err := before(99)
	assert.ErrorIs(t, err, fs.ErrNotExist)
}

// The control: what a killed process leaves of golang-migrate's own lock keeps all others out.
func TestControlGolangMigratesOwnLockOutlivesItsHolder(t *testing.T) {
	db := shop(t)
	killed := testchild.Start(t, "bare", order{DB: db.Name()})
	require.Equal(t, "<nil>", killed.Says())
	killed.Kill()
	next := testchild.Start(t, "bare", order{DB: db.Name()})
	assert.Equal(t, "can't acquire lock", next.Says())
}
