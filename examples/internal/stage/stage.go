// Package stage holds what the examples need around what they show: a database, and
// further processes of the same program.
package stage

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/devmongo"
)

// Main is the main of an example: it runs until it is done, fails or is interrupted.
func Main(example string, run func(context.Context) error) {
	log.SetFlags(0)
	log.SetPrefix(example + ": ")
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx)
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

// URIFlag is the flag that all of them have, for Start.
func URIFlag() *string {
	return flag.String("uri", "", "the MongoDB to run on (default: a server that is built in)")
}

// A Scratch is a database made for one run of an example.
type Scratch struct {
	URI    string
	Name   string
	Server string // for people

	stop func() error
}

// Start makes a scratch database on the server at uri or, if that is empty, on one
// that runs inside this process.
func Start(ctx context.Context, example, uri string) (*Scratch, error) {
	s := &Scratch{URI: uri, Name: example + "_" + rand.Text()[:8], Server: "the one at -uri", stop: func() error { return nil }}
	if uri == "" {
		embedded, err := devmongo.Start(ctx, devmongo.WithKind(devmongo.FerretDB))
		if err != nil {
			return nil, err
		}
		s.URI, s.Server, s.stop = embedded.URI(), "FerretDB, built in", embedded.Stop
	}
	return s, nil
}

// Stop removes the database, and ends the server if Start started it.
func (s *Scratch) Stop() error {
	return errors.Join(s.drop(), s.stop())
}

func (s *Scratch) drop() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	db, err := Connect(s.URI, s.Name)
	if err != nil {
		return err
	}
	defer db.Client().Disconnect(ctx)
	if err := db.Drop(ctx); err != nil {
		return fmt.Errorf("the database %s is left behind: %w", s.Name, err)
	}
	return nil
}

// Connect is mongo.Connect for a process that should notice soon if the server is
// gone.
func Connect(uri, name string) (*mongo.Database, error) {
	client, err := mongo.Connect(options.Client().ApplyURI(uri).SetServerSelectionTimeout(5 * time.Second))
	if err != nil {
		return nil, err
	}
	return client.Database(name), nil
}

// Process is this program once more, ready to be started, in a role and with an
// order that it finds out by Role. It is killed when ctx ends.
func Process(ctx context.Context, role string, order any) (*exec.Cmd, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(order)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, program)
	cmd.Env = append(os.Environ(), envRole+"="+role, envOrder+"="+string(text))
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd, nil
}

// Role is what this process was started as, and fills in its order; in the process
// that a person started it is empty.
func Role(order any) (string, error) {
	role := os.Getenv(envRole)
	if role == "" {
		return "", nil
	}
	return role, json.Unmarshal([]byte(os.Getenv(envOrder)), order)
}

const (
	envRole  = "MONGOLOCK_EXAMPLE_ROLE"
	envOrder = "MONGOLOCK_EXAMPLE_ORDER"
)

// Sleep waits, unless ctx ends first.
func Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
