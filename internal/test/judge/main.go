// Command judge is a second judge of histories. It reads the EDN files that package history writes,
// one for each key, and knows nothing else of the library: it asks whether a mutex could have
// behaved like that. Porcupine answers; with -knossos, Knossos answers as well, which is another
// program by other people, and both must agree.
//
//	judge FILE...                      fails if a history is not that of a mutex
//	judge -object FILE...              fails if every history is: for one without a safety
//	judge -knossos 'lein run' FILE...  asks Knossos, too, which is called in this folder
package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/anishathalye/porcupine"
)

const here = "internal/test/judge"

func main() {
	object := flag.Bool("object", false, "fail unless one of the histories is refused")
	knossos := flag.String("knossos", "", "the `command` that runs Knossos")
	flag.Parse()
	if err := run(flag.Args(), strings.Fields(*knossos), *object); err != nil {
		fmt.Fprintln(os.Stderr, "judge:", err)
		os.Exit(1)
	}
}

func run(files, knossos []string, object bool) error {
	if len(files) == 0 {
		return errors.New("no history to judge")
	}
	verdicts, refused := map[string]bool{}, 0
	for _, file := range files {
		ops, err := read(file)
		if err != nil {
			return err
		}
		verdicts[file] = porcupine.CheckOperations(mutex, ops)
		fmt.Fprintf(os.Stdout, "porcupine %-5v %s: %d operations\n", verdicts[file], file, len(ops))
		if !verdicts[file] {
			refused++
		}
	}
	if len(knossos) > 0 {
		if err := ask(knossos, files, verdicts); err != nil {
			return err
		}
	}
	switch {
	case object && refused == 0:
		return fmt.Errorf("nothing to object to in %d histories, but there should be", len(files))
	case !object && refused > 0:
		return fmt.Errorf("no mutex behaves like %d of %d histories", refused, len(files))
	}
	return nil
}

// ask runs Knossos, and compares its verdicts.
func ask(knossos, files []string, verdicts map[string]bool) error {
	args := slices.Concat(knossos[1:], []string{"--model", "mutex"})
	for _, file := range files {
		path, err := filepath.Abs(file)
		if err != nil {
			return err
		}
		args = append(args, path)
	}
	cmd := exec.Command(knossos[0], args...)
	cmd.Dir, cmd.Stderr = here, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("knossos: %w", err)
	}
	for _, file := range files {
		path, err := filepath.Abs(file)
		if err != nil {
			return err
		}
		_, after, found := strings.Cut(string(out), path+"\t")
		word, _, _ := strings.Cut(after, "\n")
		fmt.Fprintf(os.Stdout, "knossos   %-5s %s\n", word, file)
		if !found || word != strconv.FormatBool(verdicts[file]) {
			return fmt.Errorf("%s: porcupine says %v, knossos %q", file, verdicts[file], word)
		}
	}
	return nil
}

var line = regexp.MustCompile(`^\{:process (\d+) :type :(invoke|ok) :f :(acquire|release) :value nil :time \d+\}$`)

// read reads the operations of a file. Their order is all that counts, as it is for Knossos.
func read(file string) (ops []porcupine.Operation, err error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	under := map[string]int{} // by process: the operation that has not ended
	lines := bufio.NewScanner(f)
	for at := int64(1); lines.Scan(); at++ {
		m := line.FindStringSubmatch(lines.Text())
		if m == nil {
			return nil, fmt.Errorf("%s:%d: not a step: %s", file, at, lines.Text())
		}
		i, running := under[m[1]]
		switch {
		case m[2] == "invoke" && !running:
			under[m[1]] = len(ops)
			ops = append(ops, porcupine.Operation{ClientId: len(ops), Input: m[3] == "acquire", Call: at, Return: math.MaxInt64})
		case m[2] == "ok" && running && ops[i].Input == (m[3] == "acquire"):
			ops[i].Return = at
			delete(under, m[1])
		default:
			return nil, fmt.Errorf("%s:%d: process %s cannot do that now", file, at, m[1])
		}
	}
	return ops, lines.Err()
}

// mutex is held or not; true acquires it.
var mutex = porcupine.Model{
	Init: func() any { return false },
	Step: func(held, acquire, _ any) (bool, any) { return held != acquire, acquire },
}
