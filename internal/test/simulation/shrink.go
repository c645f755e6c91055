package simulation

import "fmt"

// Shrink leaves out of a failing run everything that the run fails without: kinds of faults,
// users, steps. The rest is easier to understand. fails runs the seed and reports whether it
// still breaks a promise.
func Shrink(s Settings, fails func(Settings) bool) Settings {
	for _, without := range []func(*Settings){
		func(s *Settings) { s.Together = true },
		func(s *Settings) { s.NoSuspensions = true },
		func(s *Settings) { s.NoClockSteps = true },
		func(s *Settings) { s.NoFailovers = true },
		func(s *Settings) { s.NoPartitions = true },
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

// Flags returns the settings as flags of the test.
func (s Settings) Flags() (flags string) {
	for name, on := range map[string]bool{
		"suspensions": s.NoSuspensions, "clocksteps": s.NoClockSteps, "failovers": s.NoFailovers, "partitions": s.NoPartitions,
		"stalls": s.NoStalls, "slow": s.NoSlow, "late": s.NoLate, "loss": s.NoLoss, "apart": s.Together,
	} {
		if on {
			flags += "," + name
		}
	}
	if flags != "" {
		flags = " -sim.without " + flags[1:]
	}
	if s.Elections {
		flags += " -sim.elections"
	}
	if s.Asking {
		flags += " -sim.asking"
	}
	if s.Rolling {
		flags += " -sim.rolling"
	}
	if s.Several {
		flags += " -sim.several"
	}
	flags += fmt.Sprint(" -sim.crowd ", s.Crowd, " -sim.mixed ", s.Mixed, " -sim.dying ", s.Dying)
	if s.Forward {
		flags += " -sim.forward"
	}
	if s.Servers != "" {
		flags += fmt.Sprintf(" -sim.servers %q", s.Servers)
	}
	if s.Users > 0 {
		flags += fmt.Sprint(" -sim.users ", s.Users)
	}
	if s.Steps > 0 {
		flags += fmt.Sprint(" -sim.steps ", s.Steps)
	}
	return flags
}
