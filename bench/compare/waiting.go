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
	idleWaiters   = 64
	idleProcesses = 8
	idleSettles   = 3 * time.Second
	idleTTL       = time.Minute      // of locks that their callers must renew; the others have their own
	idleWoken     = 30 * time.Second // a TTL: each of our waiters asks once in it, when the first grant would be over
	idlePolled    = 3 * time.Second

	crashTTL  = 5 * time.Second
	crashKeys = 4
	// What renews itself does so a third of the TTL after its grant, or later. So the keys
	// of a killed holder are 0, ¼, ½ and ¾ of a third old, as they would be at any time.
	crashApart = crashTTL / 3 / crashKeys
)

// sideBySide measures all at once.
func sideBySide(all []*rival, measure func(*rival) error) error {
	errs := make([]error, len(all))
	var rivals sync.WaitGroup
	for i, r := range all {
		rivals.Go(func() {
			if err := measure(r); err != nil {
				errs[i] = fmt.Errorf("%s: %w", r.short, err)
			}
		})
	}
	rivals.Wait()
	return errors.Join(errs...)
}

// measureIdle counts what a holder and its waiters ask their server while nothing happens:
// those that are woken side by side, and the others after them, as they load the machine.
func measureIdle(ctx context.Context, all []*rival) error {
	var woken, polling []*rival
	for _, r := range all {
		if r.polls {
			polling = append(polling, r)
		} else {
			woken = append(woken, r)
		}
	}
	return errors.Join(sideBySide(woken, func(r *rival) error { return r.measureIdle(ctx, setting{}, idleSettles, idleWoken) }),
		inTurns(func(r *rival, ctx context.Context) error {
			return r.measureIdle(ctx, setting{ttl: idleTTL}, time.Second, idlePolled)
		})(ctx, polling))
}

func (r *rival) measureIdle(ctx context.Context, s setting, settles, lasts time.Duration) error {
	return r.with(ctx, 1+idleProcesses, s, func(all []locks) error {
		release, err := all[0].acquire(ctx, "idle")
		if err != nil {
			return err
		}
		waits, leave := context.WithCancel(ctx)
		defer leave()
		ended := make(chan error, idleWaiters)
		for i := range idleWaiters {
			go func() {
				release, err := all[1+i%idleProcesses].acquire(waits, "idle")
				if err == nil {
					err = errors.Join(errTwo, release())
				}
				ended <- err
			}()
		}
		<-time.After(settles)
		before, began := r.asked.Load(), time.Now()
		select {
		case <-time.After(lasts):
		case err := <-ended:
			return fmt.Errorf("a waiter did not wait: %w", err)
		}
		r.idle = float64(r.asked.Load()-before) / time.Since(began).Seconds()
		leave()
		for range idleWaiters {
			if err := <-ended; errors.Is(err, errTwo) {
				return err
			}
		}
		return release()
	})
}

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
	mine, err := contenders[index].open(context.Background(), at, setting{ttl: crashTTL}, new(requests))
	if err != nil {
		return err
	}
	for i := range crashKeys {
		if i > 0 {
			<-time.After(crashApart)
		}
		if _, err := mine.acquire(context.Background(), crashKey(os.Getenv(crashFirst), i)); err != nil {
			return err
		}
		fmt.Fprintln(os.Stdout, "held")
	}
	select {}
}

func crashKey(first string, i int) string { return fmt.Sprintf("%s-%d", first, i) }

// measureCrash kills a holder, and waits until others have its keys.
func (r *rival) measureCrash(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer time.AfterFunc(10*crashTTL, cancel).Stop()
	return r.with(ctx, 1, setting{ttl: crashTTL}, func(all []locks) error {
		first := fmt.Sprintf("crash-%d", time.Now().UnixNano())
		at, err := json.Marshal(r.at)
		if err != nil {
			return err
		}
		self, err := os.Executable()
		if err != nil {
			return err
		}
		holder := exec.CommandContext(ctx, self)
		holder.Env = append(os.Environ(), crashLock+"="+strconv.Itoa(r.index), crashPlace+"="+string(at), crashFirst+"="+first)
		holder.Stderr = os.Stderr
		out, err := holder.StdoutPipe()
		if err != nil {
			return err
		}
		if err := holder.Start(); err != nil {
			return err
		}
		defer func() { _ = holder.Process.Kill(); _ = holder.Wait() }()
		type grant struct {
			at  time.Time
			err error
		}
		grants, says := make(chan grant, crashKeys), bufio.NewScanner(out)
		for i := range crashKeys {
			if !says.Scan() {
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
		if err := holder.Process.Kill(); err != nil {
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
	})
}
