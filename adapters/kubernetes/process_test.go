package kubelock_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/klog/v2"

	"github.com/mongolock/mongolock"
	kubelock "github.com/mongolock/mongolock/adapters/kubernetes"
	"github.com/mongolock/mongolock/internal/test/kit/testchild"
	"github.com/mongolock/mongolock/internal/test/kit/testserver"
)

func TestMain(m *testing.M) {
	testchild.Main(m, testchild.Roles{"elect": testchild.As(elect)})
}

// An order tells a child its database.
type order struct{ URI, DB string }

// elect is a process with client-go's elector. It prints its token when it leads.
func elect(ctx context.Context, o order) error {
	db, err := mongo.Connect(testserver.Dialling(o.URI))
	if err != nil {
		return err
	}
	defer func() { _ = db.Disconnect(context.Background()) }()
	locks, err := mongolock.New(db.Database(o.DB).Collection("locks"), mongolock.WithoutIndex())
	if err != nil {
		return err
	}
	l, err := kubelock.New(locks, key, fmt.Sprintf("process-%d", os.Getpid()),
		kubelock.Timing{LeaseDuration: 6 * time.Second, RenewDeadline: 4 * time.Second, RetryPeriod: time.Second})
	if err != nil {
		return err
	}
	config := l.Config(leaderelection.LeaderCallbacks{
		OnStartedLeading: func(ctx context.Context) {
			if lease, ok := kubelock.FromContext(ctx); ok {
				fmt.Println(lease.Token())
			}
		},
		OnStoppedLeading: func() {},
	})
	config.ReleaseOnCancel = true
	leaderelection.RunOrDie(klog.NewContext(ctx, logr.Discard()), config)
	return locks.Close()
}

func TestWhenTheLeadersProcessIsKilledAnotherLeads(t *testing.T) {
	uri := testserver.URI(t)
	o := order{URI: uri, DB: "kubelock_" + rand.Text()[:8]}
	t.Cleanup(func() { _ = testserver.Connect(t, uri).Database(o.DB).Drop(context.Background()) })

	first := testchild.Start(t, "elect", o)
	token := number(t, first.Says())
	second, third := testchild.Start(t, "elect", o), testchild.Start(t, "elect", o)
	select {
	case said := <-second.Saying():
		t.Fatalf("a second process leads: %q", said)
	case said := <-third.Saying():
		t.Fatalf("a third process leads: %q", said)
	case <-time.After(8 * time.Second): // longer than the lease
	}

	killed := time.Now()
	first.Kill()
	next, other := second, third
	var said string
	select {
	case said = <-second.Saying():
	case said = <-third.Saying():
		next, other = third, second
	case <-time.After(time.Minute):
		t.Fatal("nobody leads")
	}
	assert.Greater(t, number(t, said), token)
	assert.Greater(t, time.Since(killed), 3*time.Second, "the lease of a killed process is waited for")

	next.End() // it steps down
	assert.Greater(t, number(t, other.Says()), number(t, said))
	other.End()
}

func number(t *testing.T, text string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	require.NoError(t, err)
	return n
}
