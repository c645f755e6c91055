package servers

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// fakeDocker keeps a directory for each container, with what it runs and the process that does. A container
// that is cut off is one that stands still: it answers no client.
func fakeDocker(args []string) {
	told("docker", args)
	last := args[len(args)-1]
	box := func(file string) string { return filepath.Join(os.Getenv(fakeDir), last, file) }
	switch args[0] + " " + args[1] {
	case "network create", "network rm":
		return
	case "network disconnect":
		dockerSignal(box("pid"), syscall.SIGSTOP)
		return
	case "network connect":
		dockerSignal(box("pid"), syscall.SIGCONT)
		return
	case "version --format":
		fmt.Println("0.0-fake")
		return
	case "run --rm":
		if strings.Contains(strings.Join(args, " "), "with-faketime") {
			fmt.Println("/usr/lib/inside/faketime/libfaketimeMT.so.1")
		}
		return
	}
	switch args[0] {
	case "run":
		dockerRun(args[1:])
	case "start":
		dockerStart(last)
	case "kill":
		if !dockerAlive(box("pid")) {
			fmt.Fprintln(os.Stderr, "is not running")
			os.Exit(1)
		}
		dockerSignal(box("pid"), syscall.SIGKILL)
	case "pause":
		dockerSignal(box("pid"), syscall.SIGSTOP)
	case "unpause":
		dockerSignal(box("pid"), syscall.SIGCONT)
	case "stop", "rm":
		dockerSignal(box("pid"), syscall.SIGKILL)
		dockerWait(box("pid"))
	case "wait":
		dockerWait(box("pid"))
	case "inspect":
		fmt.Println(dockerAlive(box("pid")))
	case "logs":
		fmt.Println("its last line")
	default:
		fmt.Fprintln(os.Stderr, "no such command:", args)
		os.Exit(1)
	}
}

func dockerRun(args []string) {
	var env []string
	for len(args) > 0 && strings.HasPrefix(args[0], "--") {
		if args[0] == "--env" {
			env = append(env, args[1])
		}
		if args[0] == "--name" {
			env = append(env, "NAME="+args[1])
		}
		if args[0] == "--ip" {
			env = append(env, "DEVMONGO_TEST_IP="+args[1])
		}
		if args[0] == "--detach" {
			args = args[1:]
			continue
		}
		args = args[2:]
	}
	name := ""
	for _, e := range env {
		if n, ok := strings.CutPrefix(e, "NAME="); ok {
			name = n
		}
	}
	if args[0] == "broken" {
		fmt.Fprintln(os.Stderr, "no such image: broken")
		os.Exit(125)
	}
	dir := filepath.Join(os.Getenv(fakeDir), name)
	text := strings.ReplaceAll(strings.Join(args[1:], "\n"), "/data/db", dir)
	err := os.MkdirAll(dir, 0o700)
	for file, content := range map[string]string{"command": text, "env": strings.Join(env, "\n")} {
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, file), []byte(content), 0o600)
		}
	}
	if err != nil {
		panic(err)
	}
	dockerStart(name)
}

func dockerStart(name string) {
	dir := filepath.Join(os.Getenv(fakeDir), name)
	command, _ := os.ReadFile(filepath.Join(dir, "command"))
	env, _ := os.ReadFile(filepath.Join(dir, "env"))
	args := strings.Split(string(command), "\n")
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	cmd := exec.Command(self, args[1:]...)
	cmd.Env = append(os.Environ(), beFake+"="+args[0])
	for e := range strings.SplitSeq(string(env), "\n") {
		if !strings.HasPrefix(e, "LD_PRELOAD=") { // a path inside the image
			cmd.Env = append(cmd.Env, e)
		}
	}
	if err := cmd.Start(); err != nil {
		panic(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "pid"), []byte(strconv.Itoa(cmd.Process.Pid)), 0o600); err != nil {
		panic(err)
	}
	fmt.Println(name)
}

func dockerPid(file string) int {
	text, err := os.ReadFile(file)
	if err != nil {
		fmt.Fprintln(os.Stderr, "no such container")
		os.Exit(1)
	}
	pid, _ := strconv.Atoi(string(text))
	return pid
}

func dockerSignal(file string, s syscall.Signal) {
	if pid := dockerPid(file); dockerAlive(file) {
		_ = syscall.Kill(pid, s)
	}
}

// dockerAlive reports whether the process runs; one that nobody has waited for yet does not.
func dockerAlive(file string) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", dockerPid(file)))
	if err != nil {
		return false
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(after, "Z")
}

func dockerWait(file string) {
	for dockerAlive(file) {
		time.Sleep(5 * time.Millisecond) // real: between two looks
	}
}

// putFakeDocker puts docker on PATH, with addresses of the loopback in place of a network's.
func putFakeDocker(t *testing.T) {
	putFakes(t, "docker")
	before := subnets
	n := os.Getpid() % 200
	subnets = func() string { n++; return fmt.Sprintf("127.77.%d.", n%250) }
	dir := os.Getenv(fakeDir)
	t.Cleanup(func() {
		subnets = before
		left, _ := filepath.Glob(filepath.Join(dir, "*", "pid"))
		for _, file := range left {
			dockerSignal(file, syscall.SIGKILL)
		}
	})
}
