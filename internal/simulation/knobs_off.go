//go:build !knobs

package simulation

import "time"

// Without the switches nobody naps and no timer is late.
func (w *world) nap(*process) {}

func (w *world) late(Settings) time.Duration { return 0 }
