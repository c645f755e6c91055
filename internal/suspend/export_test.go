package suspend

// InBubble is inBubble, for the tests.
func InBubble() bool { return inBubble() }

// Measured reports whether this system tells how long it slept.
func Measured() bool { return total() != nil }
