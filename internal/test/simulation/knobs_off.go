//go:build !knobs

package simulation

import "time"

// Without the switches no clock is suspended and no timer is late.
func (w *world) suspend(*process) {}

func (w *world) asleep(int, time.Duration) time.Duration { return 0 }

func (w *world) late(Settings) time.Duration { return 0 }
