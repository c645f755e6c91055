//go:build !linux

package main

import "errors"

func record(string, []string) error {
	return errors.New("recording needs Linux; asciinema writes the same kind of file")
}
