package devmongo

import "strings"

// The environment variables that describe a server to a program that cannot import this package. Control
// is set by `devmongo exec` only; Require is set by people and read by tests.
const (
	EnvURI     = "MONGODB_URI"
	EnvHas     = "MONGOLOCK_HAS"     // Capabilities, separated by commas
	EnvKind    = "MONGOLOCK_KIND"    // Kind
	EnvControl = "MONGOLOCK_CONTROL" // the address of the control endpoint, without a slash at its end
	EnvVersion = "MONGOLOCK_VERSION" // the version that the server reports
	EnvRequire = "MONGOLOCK_REQUIRE" // capabilities, separated by commas, whose lack fails a test instead of skipping it
)

// Environ returns the environment variables that describe the server, in the form of os.Environ.
func (s *Server) Environ() []string {
	names := make([]string, len(s.has))
	for i, c := range s.has {
		names[i] = string(c)
	}
	return []string{
		EnvURI + "=" + s.URI(),
		EnvHas + "=" + strings.Join(names, ","),
		EnvKind + "=" + string(s.kind),
		EnvVersion + "=" + s.version,
	}
}
