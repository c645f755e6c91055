package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"time"
)

const (
	crashTTL  = 5 * time.Second
	crashKeys = 4
	// What renews itself does so a third of the TTL after its grant, or later. So the keys
	// of a killed holder are 0, ¼, ½ and ¾ of a third old, as they would be at any time.
	crashApart = crashTTL / 3 / crashKeys
)

// The environment of a child that holds keys until it is killed.
const (
	crashLock  = "MONGOLOCK_COMPARE_CRASH"
	crashPlace = "MONGOLOCK_COMPARE_PLACE"
	crashFirst = "MONGOLOCK_COMPARE_KEYS"
)

// holdUntilKilled is the main function of such a child. It acquires one key after the
// other, and says so.
func holdUntilKilled() error {
	index, err := strconv.Atoi(os.Getenv(crashLock))
	if err != nil {
		return err
	}
	var at place
	if err := json.Unmarshal([]byte(os.Getenv(crashPlace)), &at); err != nil {
		return err
	}
	ctx := context.Background()
	mine, err := contenders[index].open(ctx, at, setting{ttl: crashTTL}, new(requests))
	if err != nil {
		return err
	}
	for i := range crashKeys {
		if i > 0 {
			<-time.After(crashApart)
		}
		if _, err := mine.acquire(ctx, crashKey(os.Getenv(crashFirst), i)); err != nil {
			return err
		}
		fmt.Fprintln(os.Stdout, "held")
	}
	select {}
}

func crashKey(first string, i int) string { return fmt.Sprintf("%s-%d", first, i) }

// measureCrashes kills a holder of each contender, and waits until others have its keys;
// all side by side, as they mostly wait.
func measureCrashes(ctx context.Context, all []*rival) error {
	errs := make([]error, len(all))
	var rivals sync.WaitGroup
	for i, r := range all {
		rivals.Go(func() {
			if err := r.measureCrash(ctx); err != nil {
				errs[i] = fmt.Errorf("%s: %w", r.short, err)
			}
		})
	}
	rivals.Wait()
	return errors.Join(errs...)
}

func (r *rival) measureCrash(ctx context.Context) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer time.AfterFunc(10*crashTTL, cancel).Stop()
	all, closeAll, err := r.processes(ctx, 1, setting{ttl: crashTTL})
	if err != nil {
		return err
	}
	defer func() {
		if closed := closeAll(); err == nil {
			err = closed
		}
	}()
	first := fmt.Sprintf("crash-%d", time.Now().UnixNano())
	holder, err := r.startHolder(ctx, first)
	if err != nil {
		return err
	}
	defer func() { _ = holder.cmd.Process.Kill(); _ = holder.cmd.Wait() }()
	type grant struct {
		at  time.Time
		err error
	}
	grants := make(chan grant, crashKeys)
	for i := range crashKeys {
		if !holder.says.Scan() {
			return errors.New("the holder ended by itself")
		}
		go func() {
			release, err := all[0].acquire(ctx, crashKey(first, i))
			at := time.Now()
			if err == nil {
				err = release()
			}
			grants <- grant{at, err}
		}()
	}
	<-time.After(crashApart / 2) // until the last one waits, too
	killed := time.Now()
	if err := holder.cmd.Process.Kill(); err != nil {
		return err
	}
	for range crashKeys {
		g := <-grants
		if g.err != nil && ctx.Err() == nil { // else it takes longer than that
			return g.err
		}
		if g.at.Before(killed) {
			return errTwo
		}
		r.crash = append(r.crash, g.at.Sub(killed))
	}
	return nil
}

type holder struct {
	cmd  *exec.Cmd
	says *bufio.Scanner
}

func (r *rival) startHolder(ctx context.Context, first string) (holder, error) {
	self, err := os.Executable()
	if err != nil {
		return holder{}, err
	}
	at, err := json.Marshal(r.at)
	if err != nil {
		return holder{}, err
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), crashLock+"="+strconv.Itoa(r.index), crashPlace+"="+string(at), crashFirst+"="+first)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return holder{}, err
	}
	return holder{cmd, bufio.NewScanner(out)}, cmd.Start()
}
