package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"regexp"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/connstring"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/topology"
)

// A connection is the part of the command line that says where the locks are.
type connection struct {
	URI        string `name:"uri" group:"common" xor:"uri" help:"Connection string (default: $$MONGOLOCK_URI, or what is in the file $$MONGOLOCK_URI_FILE, or $$MONGODB_URI, or mongodb://localhost:27017)." placeholder:"URI"`
	URIFile    string `name:"uri-file" group:"common" xor:"uri" help:"File that has the connection string, so that ps shows no password." placeholder:"FILE"`
	DB         string `name:"db" group:"common" help:"Database (default: that of the connection string, or else mongolock)." env:"MONGOLOCK_DB" placeholder:"NAME"`
	Collection string `group:"common" help:"Collection (default: locks; for jobs jobs, for once and once-ls once)." env:"MONGOLOCK_COLLECTION" placeholder:"NAME"`
	Owner      string `group:"common" help:"Name of this process, which others see (default: host/pid)." env:"MONGOLOCK_OWNER" placeholder:"NAME"`
	Verbose    bool   `group:"common" short:"v" help:"Log what the library does to standard error."`

	source string // where the connection string comes from
}

// standardURI is the default of --uri.
const standardURI = "mongodb://localhost:27017"

// find finds the connection string, and refuses names that no server takes.
func (c *connection) find() error {
	file := ""
	for _, from := range []struct {
		source string
		to     *string
		text   string
	}{
		{"--uri", &c.URI, c.URI}, {"--uri-file", &file, c.URIFile}, {"MONGOLOCK_URI", &c.URI, os.Getenv("MONGOLOCK_URI")},
		{"MONGOLOCK_URI_FILE", &file, os.Getenv("MONGOLOCK_URI_FILE")}, {"MONGODB_URI", &c.URI, os.Getenv("MONGODB_URI")}, {"the default " + standardURI + " (--uri names another)", &c.URI, standardURI},
	} {
		if from.text != "" {
			c.source, *from.to = from.source, from.text
			break
		}
	}
	if file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return exitf(exitUsage, "%s: %s", c.source, sentence(err))
		}
		c.URI = strings.TrimSpace(string(text))
	}
	return errors.Join(forbidden("--db", c.DB, "/\\. \"$\x00"), forbidden("--collection", c.Collection, "$\x00"))
}

// reachFor is how long a server may take to be found. An unreachable server is reported within
// five seconds.
const reachFor = 4500 * time.Millisecond

// unreached says why no primary was found.
func unreached(cs *connstring.ConnString, err error) string {
	var none topology.ServerSelectionError
	_ = errors.As(err, &none) // without one, no server is known to have failed
	for _, server := range none.Desc.Servers {
		if server.LastError != nil {
			text := sentence(server.LastError)
			return fmt.Sprintf("%s (%s)", server.Addr, text[max(0, strings.LastIndex(text, "dial ")):])
		}
	}
	hosts := strings.Join(cs.Hosts, ",")
	if cs.ReplicaSet != "" {
		return fmt.Sprintf("%s is silent, or not of the replica set %s, or that has no primary", hosts, cs.ReplicaSet)
	}
	return hosts + " is silent, or no primary"
}

// options reads the connection string.
func (c *connection) options() (opts *options.ClientOptions, cs *connstring.ConnString, err error) {
	err = bounded(reachFor, func() error { // a mongodb+srv address asks a name server, which may not answer
		parsed, err := connstring.ParseAndValidate(c.URI)
		if err != nil {
			return err
		}
		cs, opts = parsed, options.Client().ApplyURI(c.URI)
		return opts.Validate()
	})
	name := c.source
	switch {
	case err == nil:
		return opts, cs, forbidden("the database of "+name, cs.Database, "/\\. \"$\x00")
	case errors.Is(err, context.DeadlineExceeded):
		return nil, nil, exitf(exitUnreachable, "%s: the name server does not answer", name)
	case errors.As(err, new(*net.DNSError)) || strings.Contains(err.Error(), "lookup "):
		return nil, nil, exitf(exitUnreachable, "%s: the name server: %s", name, c.redact(sentence(err)))
	}
	return nil, nil, exitf(exitUsage, "%s: %s", name, c.redact(sentence(err)))
}

// bounded returns in time, whatever the driver does in call.
func bounded(within time.Duration, call func() error) error {
	done := make(chan error, 1)
	go func() { done <- call() }()
	select {
	case err := <-done:
		return err
	case <-time.After(within):
		return context.DeadlineExceeded
	}
}

// passwordIn returns the password of a connection string, or all that may be one if it is not known where that ends.
func passwordIn(uri string) string {
	if _, rest, found := strings.Cut(uri, "://"); found {
		uri = rest
	}
	if i := strings.LastIndex(uri, "@"); i >= 0 {
		uri = uri[:i]
	}
	_, password, _ := strings.Cut(uri, ":")
	return password
}

var quotedPart = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)

// redact removes the password from an error, and all that the error quotes, which may be a part of it.
func (c *connection) redact(text string) string {
	password := passwordIn(c.URI)
	if password != "" {
		text = quotedPart.ReplaceAllString(text, "…")
	}
	if len(password) > 3 && strings.Contains(c.URI, "@") { // a short one would tell itself by what is missing
		text = strings.ReplaceAll(text, password, "…")
	}
	return text
}

// A deployment is the deployment that the command line named, after it was reached.
type deployment struct {
	client *mongo.Client
	uri    *connstring.ConnString
	opts   *options.ClientOptions
	db     *mongo.Database
}

// reach connects and makes sure that a primary answers.
func (a *app) reach() (*deployment, error) {
	c := &a.connection
	if err := c.find(); err != nil {
		return nil, err
	}
	opts, cs, err := c.options()
	if err != nil {
		return nil, err
	}
	opts.SetAppName(cmp.Or(cs.AppName, "mongolock"))
	client, err := mongo.Connect(opts)
	if err != nil {
		return nil, exitf(exitUsage, "%s: %s", c.source, c.redact(sentence(err)))
	}
	d := &deployment{client: client, uri: cs, opts: opts, db: client.Database(cmp.Or(c.DB, cs.Database, "mongolock"))}
	if err := ping(a.ctx, client, reachFor); err != nil {
		go d.close() // a server that does not answer need not be told
		switch {
		case refusesUser(err):
			return nil, exitf(exitRights, "the server of %s refuses the user: %s", c.source, c.redact(last(err)))
		case a.ctx.Err() != nil:
			return nil, a.ctx.Err()
		}
		return nil, exitf(exitUnreachable, "no server of %s can be reached: %s", c.source, c.redact(unreached(cs, err)))
	}
	return d, nil
}

// ping asks the primary for a sign of life.
func ping(ctx context.Context, client *mongo.Client, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	return bounded(within+200*time.Millisecond, func() error { return client.Ping(ctx, readpref.Primary()) })
}

// last returns the innermost error's text.
func last(err error) string {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return sentence(err)
		}
		err = inner
	}
}

func (d *deployment) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	_ = d.client.Disconnect(ctx)
}

// collection returns the collection that the command line names, or else the command's own.
func (d *deployment) collection(c *connection, standard string) *mongo.Collection {
	return d.db.Collection(cmp.Or(c.Collection, standard))
}
