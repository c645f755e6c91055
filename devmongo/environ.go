package devmongo

import "strings"

// The names under which a server is handed to a program that cannot import this package. Control is
// set by `devmongo exec` only; Require is set by people and read by tests.
const (
	EnvURI     = "MONGODB_URI"
	EnvHas     = "MONGOLOCK_HAS"     // Capabilities, separated by commas
	EnvKind    = "MONGOLOCK_KIND"    // Kind
	EnvControl = "MONGOLOCK_CONTROL" // the control endpoint's address, no slash at its end
	EnvRequire = "MONGOLOCK_REQUIRE" // capabilities, separated by commas, for want of which no test may skip
)

// Environ is the server as environment variables, in the form of os.Environ.
func (s *Server) Environ() []string {
	names := make([]string, len(s.has))
	for i, c := range s.has {
		names[i] = string(c)
	}
	return []string{
		EnvURI + "=" + s.URI(),
		EnvHas + "=" + strings.Join(names, ","),
		EnvKind + "=" + string(s.kind),
	}
}
