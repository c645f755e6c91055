package testserver

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"testing"
	"time"
)

// A Server is a server of one test's own, of the kind that the other tests share. The test may
// stop, kill and break it.
type Server struct {
	t                testing.TB
	ID, URI, Version string
	Has              []string
	Members          []string // host:port of each; what a request does to one stands in devmongo's README
}

// Start asks the program that started the shared server for another one, which ends with the
// test: with "" for one like it, with "auth=1" for one that authenticates its clients, with
// "members=3" for a set of three. If
// there is none with all that the test needs, Start skips or fails as URI does.
func Start(t testing.TB, options string, needs ...string) *Server {
	t.Helper()
	URI(t, needs...)
	s := &Server{t: t}
	body, err := control(http.MethodPost, "/servers?"+options)
	if err == nil {
		err = json.Unmarshal(body, s)
	}
	if err != nil {
		t.Fatalf("start a server of the test's own by MONGOLOCK_CONTROL: %v", err)
	}
	t.Cleanup(func() {
		if _, err := control(http.MethodDelete, "/servers/"+s.ID); err != nil {
			t.Error(err)
		}
	})
	return s
}

// Do has something done to the server: "kill", "restart", "stepdown?seconds=1", or to a member
// of it: "members/0/suspend".
func (s *Server) Do(what string) {
	s.t.Helper()
	if err := s.Try(what); err != nil {
		s.t.Fatal(err)
	}
}

// Try is Do for a request that may be refused.
func (s *Server) Try(what string) error {
	_, err := control(http.MethodPost, "/servers/"+s.ID+"/"+what)
	return err
}

// startLimit is generous: the start of a set is that of several servers, and an election.
const startLimit = 2 * time.Minute

// control sends a request to the `devmongo exec` that the tests run under. The request does
// not end with the test's context: clean-up comes after that.
func control(method, path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, os.Getenv("MONGOLOCK_CONTROL")+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	reply, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer reply.Body.Close()
	body, err := io.ReadAll(reply.Body)
	if err != nil {
		return nil, err
	}
	if reply.StatusCode >= http.StatusMultipleChoices {
		return nil, fmt.Errorf("%s %s: %s, %s", method, path, reply.Status, body)
	}
	return body, nil
}
