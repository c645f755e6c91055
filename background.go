package mongolock

import "time"

// spawn runs f in the background, unless the client is closed already. Close
// waits for it.
func (c *Client) spawn(f func()) bool {
	if !c.enter() {
		return false
	}
	go func() {
		defer c.background.Done()
		f()
	}()
	return true
}

// enter counts the running goroutine among those that Close waits for; false if
// the client is closed. The caller owes a background.Done.
func (c *Client) enter() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.enterLocked()
}

// enterLocked is enter, with c.mu held.
func (c *Client) enterLocked() bool {
	if c.closed {
		return false
	}
	c.background.Add(1)
	return true
}

// pause sleeps in the background; false if the client is being torn down.
func (c *Client) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-c.base.Done():
		return false
	}
}
