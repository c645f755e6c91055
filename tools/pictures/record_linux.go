package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// record runs a command on a terminal of its own and writes what it prints, and when, as an
// asciicast of version 2. It copies all of it to standard output.
func record(file string, argv []string) error {
	parent, child, err := terminal()
	if err != nil {
		return err
	}
	defer parent.Close()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = child, child, child
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return errors.Join(err, child.Close())
	}
	if err := child.Close(); err != nil {
		return err
	}
	to, err := os.Create(file)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(to)
	fmt.Fprintf(w, `{"version": 2, "width": %d, "height": %d, "title": "make demo"}`+"\n", columns, rows)
	err = errors.Join(copyEvents(w, parent, began), w.Flush(), to.Close())
	return errors.Join(cmd.Wait(), err)
}

const columns, rows = 100, 50

// copyEvents writes an event for each piece of output.
func copyEvents(to io.Writer, from io.Reader, began time.Time) error {
	var open []byte // the beginning of a character
	piece := make([]byte, 1<<16)
	for {
		count, err := from.Read(piece)
		at := time.Since(began).Seconds()
		if count > 0 {
			text := slices.Concat(open, piece[:count])
			whole := len(text)
			for whole > 0 && whole > len(text)-utf8.UTFMax && !utf8.Valid(text[:whole]) {
				whole--
			}
			open = text[whole:]
			said, encodeErr := json.Marshal([]any{json.Number(fmt.Sprintf("%.3f", at)), "o", string(text[:whole])})
			if encodeErr != nil {
				return encodeErr
			}
			fmt.Fprintf(to, "%s\n", said)
			_, _ = os.Stdout.Write(piece[:count]) // for the person who waits
		}
		if errors.Is(err, io.EOF) || errors.Is(err, syscall.EIO) { // the terminal's last user is gone
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// terminal opens both ends of a new pseudo-terminal.
func terminal() (parent, child *os.File, err error) {
	parent, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, err
	}
	fd := int(parent.Fd()) //nolint:gosec // a descriptor fits
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: columns})
	}
	if err == nil {
		child, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		return nil, nil, errors.Join(err, parent.Close())
	}
	return parent, child, nil
}
