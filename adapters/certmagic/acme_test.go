package certmagiclock_test

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/letsencrypt/pebble/v2/ca"
	"github.com/letsencrypt/pebble/v2/db"
	"github.com/letsencrypt/pebble/v2/va"
	"github.com/letsencrypt/pebble/v2/wfe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.uber.org/zap"

	"github.com/mongolock/mongolock"
	certmagiclock "github.com/mongolock/mongolock/adapters/certmagic"
	"github.com/mongolock/mongolock/internal/test/kit/testchild"
	"github.com/mongolock/mongolock/internal/test/kit/testserver"
)

const domain = "shared.example.com"

func TestMain(m *testing.M) {
	testchild.Main(m, testchild.Roles{"obtain": testchild.As(obtain)})
}

// An order tells a child what to obtain from where.
type order struct {
	URI, DB   string
	Directory string // of the ACME server
	Roots     string // its certificate, PEM
	Unlocked  bool   // the fault of the control: locks are no locks
}

// obtain is what a process does: with CertMagic itself, it obtains the certificate of domain
// when it is told to, and prints its serial number.
func obtain(ctx context.Context, o order) error {
	client, err := mongo.Connect(testserver.Dialling(o.URI))
	if err != nil {
		return err
	}
	defer func() { _ = client.Disconnect(context.Background()) }()
	locks, err := mongolock.New(client.Database(o.DB).Collection("locks"))
	if err != nil {
		return err
	}
	shared, err := certmagiclock.New(locks, client.Database(o.DB).Collection("certificates"))
	if err != nil {
		return err
	}
	var storage certmagic.Storage = shared
	if o.Unlocked {
		storage = &unlocked{shared}
	}
	port, err := freePort()
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(o.Roots))

	var config *certmagic.Config
	cache := certmagic.NewCache(certmagic.CacheOptions{
		GetConfigForCert: func(certmagic.Certificate) (*certmagic.Config, error) { return config, nil },
		Logger:           zap.NewNop(),
	})
	defer cache.Stop()
	config = certmagic.New(cache, certmagic.Config{Storage: storage, Logger: zap.NewNop()})
	config.Issuers = []certmagic.Issuer{certmagic.NewACMEIssuer(config, certmagic.ACMEIssuer{
		CA: o.Directory, TestCA: o.Directory, TrustedRoots: roots, Email: "admin@example.com", Agreed: true,
		DisableTLSALPNChallenge: true, AltHTTPPort: port, Logger: zap.NewNop(),
	})}
	fmt.Println("ready")
	<-testchild.Told(ctx)
	if err := config.ObtainCertSync(ctx, domain); err != nil {
		return err
	}
	cert, err := config.CacheManagedCertificate(ctx, domain)
	switch {
	case err == nil:
		fmt.Println(cert.Leaf.SerialNumber)
	case o.Unlocked: // one process's certificate with the other's key: what the lock is there for
		fmt.Println(err)
	default:
		return err
	}
	<-ctx.Done()
	return locks.Close()
}

// An unlocked storage grants every lock.
type unlocked struct{ *certmagiclock.Storage }

func (*unlocked) Lock(context.Context, string) error                          { return nil }
func (*unlocked) TryLock(context.Context, string) (bool, error)               { return true, nil }
func (*unlocked) Unlock(context.Context, string) error                        { return nil }
func (*unlocked) RenewLockLease(context.Context, string, time.Duration) error { return nil }

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	addr, ok := l.Addr().(*net.TCPAddr)
	if !ok {
		return 0, errors.New("no TCP address")
	}
	return addr.Port, nil
}

// An authority is Pebble, the ACME server of Let's Encrypt for tests, which believes every
// answer to a challenge.
type authority struct {
	*httptest.Server
	ordered atomic.Int32 // certificates
}

// newAuthority starts one. It answers the first order when a second one has come, or after
// patience: so processes that do not exclude each other are seen to.
func newAuthority(t *testing.T, patience time.Duration) *authority {
	t.Helper()
	t.Setenv("PEBBLE_VA_ALWAYS_VALID", "1")
	t.Setenv("PEBBLE_VA_NOSLEEP", "1")
	t.Setenv("PEBBLE_WFE_NONCEREJECT", "0")
	said := log.New(io.Discard, "", 0)
	store := db.NewMemoryStore()
	profiles := map[string]ca.Profile{"default": {Description: "the default"}}
	front := wfe.New(said, store, va.New(said, 80, 443, false, "", store), ca.New(said, store, "", "ecdsa", 0, 1, profiles),
		[]string{"pebble.example.com"}, false, false, 1, 1)
	handler := front.Handler()
	a := &authority{}
	second := make(chan struct{})
	a.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/order-plz") {
			switch a.ordered.Add(1) {
			case 1:
				select {
				case <-second:
				case <-time.After(patience):
				}
			case 2:
				close(second)
			}
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(a.Close)
	return a
}

// race lets two processes obtain one certificate at once. It returns what they have, and how
// many were ordered.
func race(t *testing.T, patience time.Duration, broken bool) (serials []string, ordered int) {
	t.Helper()
	uri := testserver.URI(t)
	ca := newAuthority(t, patience)
	o := order{
		URI: uri, DB: "certmagic_" + rand.Text()[:8], Directory: ca.URL + "/dir", Unlocked: broken,
		Roots: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.Certificate().Raw})),
	}
	t.Cleanup(func() { _ = testserver.Connect(t, uri).Database(o.DB).Drop(context.Background()) })
	hosts := []*testchild.Process{testchild.Start(t, "obtain", o), testchild.Start(t, "obtain", o)}
	for _, h := range hosts {
		h.Says() // it is ready
	}
	for _, h := range hosts {
		h.Tell("now")
	}
	for _, h := range hosts {
		serials = append(serials, h.Says())
	}
	for _, h := range hosts {
		h.End()
	}
	left, err := testserver.Connect(t, uri).Database(o.DB).Collection("locks").CountDocuments(t.Context(), bson.D{})
	require.NoError(t, err)
	assert.Zero(t, left, "locks that were not given back")
	return serials, int(ca.ordered.Load())
}

func TestTwoProcessesObtainOneCertificateOnce(t *testing.T) {
	serials, ordered := race(t, time.Second, false)
	assert.Equal(t, 1, ordered, "certificates that were ordered")
	assert.Equal(t, serials[0], serials[1], "both processes have the same certificate")
}

// The control of the test above.
func TestControlWithoutLocksEachProcessObtainsACertificate(t *testing.T) {
	_, ordered := race(t, 20*time.Second, true)
	assert.Equal(t, 2, ordered, "certificates that were ordered without a lock")
}
