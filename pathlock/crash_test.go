package pathlock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/mongolock/mongolock/internal/hostfile"
	"github.com/mongolock/mongolock/internal/test/kit/disktest"
	"github.com/mongolock/mongolock/pathlock"
)

// onDisk is a tree in a directory, for tests of crashes.
type onDisk struct {
	tree *pathlock.Tree
	dir  *pathlock.Dir
}

func openOnDisk(disk hostfile.Disk) (disktest.Locks, error) {
	dir := pathlock.OnDisk(disk)
	tree, err := pathlock.New(dir, "tree")
	return onDisk{tree, dir}, err
}

func (d onDisk) Take(path string) (token string, err error) {
	l, err := d.tree.Lock(context.Background(), exclusive(path, time.Hour))
	return l.Token, err
}

func (d onDisk) Extend(_, token string) error {
	_, err := d.tree.Refresh(context.Background(), token, 10*time.Hour)
	return err
}

func (d onDisk) Release(path, token string) error {
	return d.tree.Release(context.Background(), token)
}

func (d onDisk) Find(path, token string) (left time.Duration, others bool, err error) {
	all, err := d.tree.Locks(context.Background())
	for _, l := range all {
		switch {
		case l.Path != path:
		case token == "" || token == l.Token:
			left = l.Left
		default:
			others = true
		}
	}
	return left, others, err
}

func (d onDisk) Newer(token, than string) bool { return token != than }

func (d onDisk) Close() error { return errors.Join(d.tree.Close(), d.dir.Close()) }

func TestAKillAtAnyWriteLosesNoAcknowledgedLock(t *testing.T) { disktest.OutliveKills(t, openOnDisk) }

func TestAPowerCutAtAnyWriteLosesNoAcknowledgedLock(t *testing.T) {
	disktest.OutlivePowerCuts(t, openOnDisk)
}
