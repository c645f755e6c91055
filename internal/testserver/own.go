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

// An Own is a server of one test's own, of the kind that the others share. The test
// may treat it roughly.
type Own struct {
	t       testing.TB
	ID, URI string
}

// Start asks whoever started the tests' server for another, which ends with the test:
// "" for one like it, "auth=1" for one that asks who its clients are. Where it cannot
// be had, or lacks what the test needs, URI says what happens.
func Start(t testing.TB, options string, needs ...string) *Own {
	t.Helper()
	URI(t, needs...)
	s := &Own{t: t}
	body, err := control(http.MethodPost, "/servers?"+options)
	if err == nil {
		err = json.Unmarshal(body, s)
	}
	if err != nil {
		t.Fatalf("a server of the test's own, from MONGOLOCK_CONTROL: %v", err)
	}
	t.Cleanup(func() {
		if _, err := control(http.MethodDelete, "/servers/"+s.ID); err != nil {
			t.Error(err)
		}
	})
	return s
}

// Do does something to the server: "kill", "restart", "stepdown?seconds=1".
func (s *Own) Do(what string) {
	s.t.Helper()
	if err := s.Try(what); err != nil {
		s.t.Fatal(err)
	}
}

// Try is Do for what the server may refuse.
func (s *Own) Try(what string) error {
	_, err := control(http.MethodPost, "/servers/"+s.ID+"/"+what)
	return err
}

// control sends a request to the `devmongo exec` that the tests run under. It does not
// end with a test's context, as what it does outlives that.
func control(method, path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
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
