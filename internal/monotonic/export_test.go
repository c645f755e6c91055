package monotonic

// Measured reports whether this system tells how long it slept.
func Measured() bool { return total() != nil }
