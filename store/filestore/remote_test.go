package filestore_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/filestore"
)

// A remote makes the calls of the contract in another process.
type remote struct{ url string }

// A call is the request to the other process, and a result its answer.
type call struct {
	Op     string
	Claim  store.Claim
	Ref    store.Ref
	From   *store.Ref
	Batch  []store.Renewal
	End    store.ReleaseRequest
	Place  store.Place
	Reason string
	Now    bool
}

type result struct {
	Grant    store.Grant
	Renewed  []store.Renewed // without their errors
	Released store.ReleaseResult
	Errs     []*verdict
	Status   store.Status
	Settled  bool
	Err      *verdict
}

// A verdict carries an error between processes, as far as the contract distinguishes
// errors.
type verdict struct {
	Text       string
	Held       *store.HeldError
	Mismatch   *store.MismatchError
	Broken     *store.BrokenError
	Gone       bool
	Foreign    bool
	TooLarge   bool
	NotApplied bool
	Refused    bool // matches errors.ErrUnsupported
}

func pack(err error) *verdict {
	if err == nil {
		return nil
	}
	v := &verdict{
		Text: err.Error(), Gone: errors.Is(err, store.ErrGone), Foreign: errors.Is(err, store.ErrForeign),
		TooLarge: errors.Is(err, store.ErrTooLarge), NotApplied: errors.Is(err, store.ErrNotApplied),
		Refused: errors.Is(err, errors.ErrUnsupported),
	}
	errors.As(err, &v.Held)
	errors.As(err, &v.Mismatch)
	errors.As(err, &v.Broken)
	return v
}

func (v *verdict) unpack() error {
	switch {
	case v == nil:
		return nil
	case v.Held != nil:
		return v.Held
	case v.Mismatch != nil:
		return v.Mismatch
	case v.Broken != nil:
		return v.Broken
	}
	err := errors.New(v.Text)
	for _, mark := range []struct {
		is   bool
		mark error
	}{{v.Gone, store.ErrGone}, {v.Foreign, store.ErrForeign}, {v.TooLarge, store.ErrTooLarge}, {v.NotApplied, store.ErrNotApplied}, {v.Refused, errors.ErrUnsupported}} {
		if mark.is {
			err = fmt.Errorf("%w (%w)", err, mark.mark)
		}
	}
	return err
}

// answer makes a call in the other process.
func answer(s *filestore.Store, w http.ResponseWriter, r *http.Request) {
	var c call
	if err := json.NewDecoder(r.Body).Decode(&c); err != nil {
		panic(err)
	}
	var res result
	var err error
	switch ctx := r.Context(); c.Op {
	case "acquire":
		res.Grant, err = s.Acquire(ctx, c.Claim)
	case "transfer":
		res.Grant, err = s.Transfer(ctx, *c.From, c.Claim)
	case "release":
		res.Released, err = s.Release(ctx, c.End)
	case "leave":
		res.Status, err = s.Leave(ctx, c.Ref.Key, c.Place)
	case "undo":
		res.Settled, err = s.Undo(ctx, c.Ref, c.From)
	case "break":
		err = s.Break(ctx, c.Ref, c.Reason, c.Now)
	case "renew":
		res.Renewed = s.Renew(ctx, c.Batch)
		for i := range res.Renewed {
			res.Errs = append(res.Errs, pack(res.Renewed[i].Err))
			res.Renewed[i].Err = nil
		}
	default:
		panic(c.Op)
	}
	res.Err = pack(err)
	_ = json.NewEncoder(w).Encode(res)
}

func (r remote) call(ctx context.Context, c call) (res result) {
	fail := func(err error) result { return result{Err: pack(err)} }
	if err := ctx.Err(); err != nil {
		return fail(fmt.Errorf("%w (%w)", err, store.ErrNotApplied))
	}
	body, err := json.Marshal(c)
	if err != nil {
		return fail(err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url, bytes.NewReader(body))
	if err != nil {
		return fail(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fail(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&res); err != nil {
		return fail(err)
	}
	return res
}

func (p inProcesses) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	res := p.one().call(ctx, call{Op: "acquire", Claim: c})
	return res.Grant, res.Err.unpack()
}

func (p inProcesses) Transfer(ctx context.Context, from store.Ref, to store.Claim) (store.Grant, error) {
	res := p.one().call(ctx, call{Op: "transfer", From: &from, Claim: to})
	return res.Grant, res.Err.unpack()
}

func (p inProcesses) Release(ctx context.Context, e store.ReleaseRequest) (store.ReleaseResult, error) {
	res := p.one().call(ctx, call{Op: "release", End: e})
	return res.Released, res.Err.unpack()
}

func (p inProcesses) Leave(ctx context.Context, key string, place store.Place) (store.Status, error) {
	res := p.one().call(ctx, call{Op: "leave", Ref: store.Ref{Key: key}, Place: place})
	return res.Status, res.Err.unpack()
}

func (p inProcesses) Undo(ctx context.Context, claim store.Ref, from *store.Ref) (bool, error) {
	res := p.one().call(ctx, call{Op: "undo", Ref: claim, From: from})
	return res.Settled, res.Err.unpack()
}

func (p inProcesses) Break(ctx context.Context, r store.Ref, reason string, now bool) error {
	return p.one().call(ctx, call{Op: "break", Ref: r, Reason: reason, Now: now}).Err.unpack()
}

func (p inProcesses) Renew(ctx context.Context, batch []store.Renewal) []store.Renewed {
	res := p.one().call(ctx, call{Op: "renew", Batch: batch})
	answers := make([]store.Renewed, len(batch))
	for i := range answers {
		if res.Err != nil {
			answers[i].Err = res.Err.unpack()
			continue
		}
		answers[i] = res.Renewed[i]
		answers[i].Err = res.Errs[i].unpack()
	}
	return answers
}
