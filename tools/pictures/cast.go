package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// A printed line of a recording, with the time at which it was there.
type printed struct {
	at   float64 // in seconds since the beginning
	text string
}

// record writes the lines that it reads, and when they came, as an asciicast of version 2. It copies all of
// them to standard output, for the person who waits.
func record(file string, from io.Reader) error {
	to, err := os.Create(file)
	if err != nil {
		return err
	}
	fmt.Fprintln(to, `{"version": 2, "width": 100, "height": 50, "title": "make demo"}`)
	began, lines := time.Now(), bufio.NewScanner(from)
	for lines.Scan() {
		said, err := json.Marshal([]any{json.Number(fmt.Sprintf("%.3f", time.Since(began).Seconds())), "o", lines.Text() + "\r\n"})
		if err != nil {
			return errors.Join(err, to.Close())
		}
		fmt.Fprintf(to, "%s\n", said)
		fmt.Fprintln(os.Stdout, lines.Text())
	}
	return errors.Join(lines.Err(), to.Close())
}

// readCast returns the lines of an asciicast: a header, then an array [time, "o", text] for each piece of output.
func readCast(cast string) (all []printed, err error) {
	header, rest, _ := strings.Cut(cast, "\n")
	var head struct{ Version int }
	if err := json.Unmarshal([]byte(header), &head); err != nil || head.Version != 2 {
		return nil, errors.Join(errors.New("not an asciicast of version 2"), err)
	}
	open := ""
	for event := range strings.Lines(rest) {
		var at float64
		var kind, text string
		if err := json.Unmarshal([]byte(event), &[]any{&at, &kind, &text}); err != nil {
			return nil, fmt.Errorf("%s: %w", event, err)
		}
		lines := strings.Split(open+text, "\n")
		for _, l := range lines[:len(lines)-1] {
			all = append(all, printed{at, strings.TrimRight(l, "\r")})
		}
		open = lines[len(lines)-1]
	}
	return all, nil
}
