// Package errtext has how the library's errors read when they are put together.
package errtext

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

const name = "mongolock: "

// Once returns text with the library's name at its first place alone: errors that are wrapped or
// joined would each say it.
func Once(text string) string {
	before, after, said := strings.Cut(text, name)
	if !said {
		return text
	}
	return before + name + strings.ReplaceAll(after, name, "")
}

type once struct{ error }

func (o once) Error() string { return Once(o.error.Error()) }
func (o once) Unwrap() error { return o.error }

// Errorf is fmt.Errorf for errors of the library.
func Errorf(format string, args ...any) error { return once{fmt.Errorf(format, args...)} }

type joined struct{ errs []error }

func (j joined) Error() string   { return Once(errors.Join(j.errs...).Error()) }
func (j joined) Unwrap() []error { return j.errs }

// Join is errors.Join for errors of the library.
func Join(errs ...error) error {
	errs = slices.DeleteFunc(slices.Clone(errs), func(err error) bool { return err == nil })
	if len(errs) == 0 {
		return nil
	}
	return joined{errs}
}

// Key quotes a key. One that is JSON stays readable, between backquotes.
func Key(key string) string {
	if strings.Contains(key, `"`) && strconv.CanBackquote(key) {
		return "`" + key + "`"
	}
	return strconv.Quote(key)
}
