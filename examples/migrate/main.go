// Command migrate brings a database up to date with golang-migrate when a program starts,
// on however many hosts that happens at once.
//
//	MONGODB_URI=mongodb://localhost:27017 go run . app
//
// golang-migrate has a lock of its own: a document that a process inserts and deletes. A
// process that is killed leaves it, and all others fail until it is deleted by hand. Here
// package once takes its place: of a runner that is killed another host takes over.
package main

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"net/url"
	"os"

	migrate "github.com/golang-migrate/migrate/v4"
	"github.com/golang-migrate/migrate/v4/database"
	_ "github.com/golang-migrate/migrate/v4/database/mongodb"
	"github.com/golang-migrate/migrate/v4/source/iofs"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/once"
)

//go:embed migrations
var migrations embed.FS

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: migrate DATABASE")
	}
	if err := run(context.Background(), cmp.Or(os.Getenv("MONGODB_URI"), "mongodb://localhost:27017"), os.Args[1]); err != nil {
		log.Fatal(err)
	}
	fmt.Println("up to date")
}

func run(ctx context.Context, uri, db string) error {
	conn, err := mongo.Connect(options.Client().ApplyURI(uri))
	if err != nil {
		return err
	}
	defer conn.Disconnect(ctx)
	return start(ctx, conn, db, func(ctx context.Context, run once.Run) error { return up(ctx, uri, db, run) })
}

// start runs the migrations unless that is done. A set of them that differs has another
// name, as it is more work to do.
func start(ctx context.Context, conn *mongo.Client, db string, work once.Func, opts ...once.Option) error {
	texts, newest, err := contents()
	if err != nil {
		return err
	}
	return once.Do(ctx, conn.Database(db).Collection("once"), "migrations up to "+newest, work, append(opts, once.Content(texts...))...)
}

// contents are the texts of the migrations, and the name of the newest.
func contents() (texts [][]byte, newest string, err error) {
	files, err := fs.ReadDir(migrations, "migrations")
	if err != nil {
		return nil, "", err
	}
	for _, f := range files {
		text, err := fs.ReadFile(migrations, "migrations/"+f.Name())
		if err != nil {
			return nil, "", err
		}
		texts, newest = append(texts, []byte(f.Name()), text), f.Name()
	}
	return texts, newest, nil
}

// up runs what is not applied yet.
func up(ctx context.Context, uri, db string, run once.Run) error {
	m, err := open(uri, db)
	if err != nil {
		return err
	}
	defer m.Close()
	defer context.AfterFunc(ctx, func() { m.GracefulStop <- true })() // the lease is lost: no further migration
	version, dirty, err := m.Version()
	if err != nil && !errors.Is(err, migrate.ErrNilVersion) {
		return err
	}
	if dirty && run.Number() > 1 {
		// A runner died in the middle of this migration. Ours make no difference the second time.
		last, err := before(version)
		if err != nil {
			return err
		}
		if err := m.Force(last); err != nil {
			return err
		}
	}
	if err := m.Up(); err != nil && !errors.Is(err, migrate.ErrNoChange) {
		return err
	}
	return ctx.Err()
}

// before is the version that a migration begins at.
func before(version uint) (int, error) {
	source, err := iofs.New(migrations, "migrations")
	if err != nil {
		return 0, err
	}
	if first, err := source.First(); err == nil && version == first {
		return database.NilVersion, nil
	}
	last, err := source.Prev(version)
	return int(last), err //nolint:gosec // a small number
}

// open opens golang-migrate, without its own lock.
func open(uri, db string) (*migrate.Migrate, error) {
	source, err := iofs.New(migrations, "migrations")
	if err != nil {
		return nil, err
	}
	target, err := address(uri, db, "x-advisory-locking", "false")
	if err != nil {
		return nil, err
	}
	return migrate.NewWithSourceInstance("iofs", source, target)
}

// address is a connection string with the database and an option of golang-migrate.
func address(uri, db, option, value string) (string, error) {
	u, err := url.Parse(uri)
	if err != nil {
		return "", err
	}
	query := u.Query()
	query.Set(option, value)
	u.Path, u.RawQuery = "/"+db, query.Encode()
	return u.String(), nil
}
