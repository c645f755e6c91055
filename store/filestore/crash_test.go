package filestore_test

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/mongolock/mongolock/internal/hostfile"
	"github.com/mongolock/mongolock/internal/test/kit/disktest"
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/filestore"
)

func mine(key string) store.Claim {
	return store.Claim{
		Ref:   store.Ref{Key: key, ID: "the id of " + key, Mode: store.Exclusive},
		Limit: 1, TTL: time.Hour, Owner: "child",
	}
}

// onDisk is a filestore as the crash tests use it.
type onDisk struct{ *filestore.Store }

func openOnDisk(disk hostfile.Disk) (disktest.Locks, error) { return onDisk{filestore.On(disk)}, nil }

func (s onDisk) Take(key string) (token string, err error) {
	g, err := s.Acquire(context.Background(), mine(key))
	return fmt.Sprint(g.Token), err
}

func (s onDisk) Extend(key, _ string) error {
	return s.Renew(context.Background(), []store.Renewal{{Ref: mine(key).Ref, TTL: 10 * time.Hour}})[0].Err
}

func (s onDisk) Release(key, _ string) error {
	_, err := s.Store.Release(context.Background(), store.ReleaseRequest{Ref: mine(key).Ref})
	return err
}

func (s onDisk) Find(key, _ string) (left time.Duration, others bool, err error) {
	all, err := s.Look(context.Background(), []string{key})
	if err != nil {
		return 0, false, err
	}
	status := all[0]
	if len(status.Holders) == 1 && status.Holders[0].ID == mine(key).ID && !status.Free() {
		return status.Left(), false, nil
	}
	return 0, len(status.Holders) > 0, nil
}

func (s onDisk) Newer(token, than string) bool {
	one, failed := strconv.ParseInt(token, 10, 64)
	two, err := strconv.ParseInt(than, 10, 64)
	return failed == nil && err == nil && one > two
}

func TestAKillDuringAnyWriteLosesNothingAcknowledged(t *testing.T) {
	disktest.OutliveKills(t, openOnDisk)
}

func TestAPowerCutDuringAnyWriteLosesNothingAcknowledged(t *testing.T) {
	disktest.OutlivePowerCuts(t, openOnDisk)
}
