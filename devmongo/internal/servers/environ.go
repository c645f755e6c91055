package servers

import "strings"

// The environment variables that describe a server to the command of `devmongo exec`.
const (
	EnvURI     = "MONGODB_URI"
	EnvHas     = "MONGOLOCK_HAS"     // Capabilities, separated by commas
	EnvKind    = "MONGOLOCK_KIND"    // Kind
	EnvControl = "MONGOLOCK_CONTROL" // the address of the control endpoint, without a slash at its end
	EnvVersion = "MONGOLOCK_VERSION" // the version that the server reports
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
