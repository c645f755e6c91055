package faultproxy

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
)

var errSeveral = errors.New("a proxy is for exactly one server")

// parseTarget parses a URI or a plain host:port that names one server.
func parseTarget(target string) (*url.URL, error) {
	if !strings.Contains(target, "://") {
		target = "mongodb://" + target
	}
	uri, err := url.Parse(target)
	if err != nil {
		// The parser's error quotes the target, which may hold a password.
		return nil, errors.New("faultproxy: the target is not a URI with one host")
	}
	query := uri.Query()
	switch {
	case uri.Scheme != "mongodb":
		return nil, fmt.Errorf("faultproxy: scheme %q: only mongodb:// names one server", uri.Scheme)
	case uri.Hostname() == "" || strings.Contains(uri.Host, ","):
		return nil, fmt.Errorf("faultproxy: host %q: %w", uri.Host, errSeveral)
	case query.Get("tls") == "true" || query.Get("ssl") == "true":
		return nil, errors.New("faultproxy: a proxy cannot read TLS")
	}
	if uri.Port() == "" {
		uri.Host = net.JoinHostPort(uri.Hostname(), "27017")
	}
	if uri.Path == "" {
		uri.Path = "/"
	}
	return uri, nil
}
