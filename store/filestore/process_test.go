package filestore_test

import (
	"context"
	"flag"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/mongolock/mongolock/internal/test/kit/disktest"
	"github.com/mongolock/mongolock/internal/test/kit/testchild"
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/filestore"
	"github.com/mongolock/mongolock/store/storetest"
)

func TestMain(m *testing.M) {
	flag.Parse()
	_ = flag.Set("test.parallel", "4") // the claims of a contract wait more than they work
	testchild.Main(m, testchild.Roles{disktest.Role: disktest.Dies(openOnDisk), "serves": testchild.As(serve)})
}

// serve answers the calls of the contract for another process, until that one ends.
func serve(ctx context.Context, dir string) error {
	s, err := filestore.Open(dir)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(listener.Addr())
	context.AfterFunc(ctx, func() { _ = listener.Close() })
	_ = http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { answer(s, w, r) }))
	return s.Close()
}

// servers starts three processes that serve one directory.
func servers(t testing.TB, dir string, env ...string) (calls [3]remote) {
	t.Helper()
	for i := range calls {
		calls[i] = remote{"http://" + testchild.Start(t, "serves", dir, env...).Says()}
	}
	return calls
}

// inProcesses is a store that makes each call in another process than the last one.
type inProcesses struct {
	byHand // reads in this process, and changes files by hand

	calls *[3]remote
	next  *atomic.Int32
}

func (p inProcesses) one() remote { return p.calls[int(p.next.Add(1))%len(p.calls)] }

func TestContractAmongSeveralProcesses(t *testing.T) {
	dir := disktest.InMemory(t)
	calls := servers(t, dir)
	var next, shape atomic.Int32
	t.Cleanup(func() { // the claims run in parallel, after this function
		assert.GreaterOrEqual(t, next.Load(), int32(1000), "calls that went to other processes")
	})
	storetest.Run(t, storetest.Real, func(t testing.TB) store.Store {
		return inProcesses{byHand{open(t, dir), dir, &shape}, &calls, &next}
	})
}

// sameTokens lets several processes draw tokens at once, and returns what is wrong with
// the tokens.
func sameTokens(t testing.TB, env ...string) (wrong []string) {
	t.Helper()
	const each = 40
	var mu sync.Mutex // protects drawn and wrong
	drawn := make(map[int64]bool)
	var all sync.WaitGroup
	for i, r := range servers(t, disktest.InMemory(t), env...) {
		all.Go(func() {
			for n := range each {
				res := r.call(t.Context(), call{Op: "acquire", Claim: mine(fmt.Sprint(i, " ", n))})
				mu.Lock()
				switch {
				case res.Err != nil:
					wrong = append(wrong, res.Err.Text)
				case drawn[res.Grant.Token]:
					wrong = append(wrong, fmt.Sprintf("two grants have the token %d", res.Grant.Token))
				}
				drawn[res.Grant.Token] = true
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return wrong
}

func TestNoTwoGrantsOfSeveralProcessesHaveOneToken(t *testing.T) {
	assert.Empty(t, sameTokens(t))
}
