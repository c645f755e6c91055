package simulation

import "fmt"

// Shrink leaves out of a failing run whatever it fails without: kinds of weather,
// users, steps. What is left is easier to understand. fails runs a seed and
// reports whether a promise was still broken.
func Shrink(s Settings, fails func(Settings) bool) Settings {
	for _, without := range []func(*Settings){
		func(s *Settings) { s.NoNaps = true },
		func(s *Settings) { s.NoSteps = true },
		func(s *Settings) { s.NoStrokes = true },
		func(s *Settings) { s.NoCuts = true },
		func(s *Settings) { s.NoStalls = true },
		func(s *Settings) { s.NoSlow = true },
		func(s *Settings) { s.NoLate = true },
		func(s *Settings) { s.NoLoss = true },
	} {
		next := s
		if without(&next); fails(next) {
			s = next
		}
	}
	for _, users := range []int{1, 2, 3, 4} {
		next := s
		if next.Users = users; fails(next) {
			s = next
			break
		}
	}
	for _, steps := range []int{1, 2, 3, 5} {
		next := s
		if next.Steps = steps; fails(next) {
			s = next
			break
		}
	}
	return s
}

// Flags are the settings as the test takes them.
func (s Settings) Flags() (flags string) {
	for name, on := range map[string]bool{
		"naps": s.NoNaps, "steps": s.NoSteps, "strokes": s.NoStrokes, "cuts": s.NoCuts,
		"stalls": s.NoStalls, "slow": s.NoSlow, "late": s.NoLate, "loss": s.NoLoss,
	} {
		if on {
			flags += "," + name
		}
	}
	if flags != "" {
		flags = " -sim.without " + flags[1:]
	}
	if s.Users > 0 {
		flags += fmt.Sprint(" -sim.users ", s.Users)
	}
	if s.Steps > 0 {
		flags += fmt.Sprint(" -sim.steps ", s.Steps)
	}
	return flags
}
