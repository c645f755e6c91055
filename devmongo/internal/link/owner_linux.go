package link

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

func canTell() error {
	_, err := os.Stat("/proc/self/net/tcp")
	return err
}

// owner returns the index of the process that has the other end of a connection that was accepted, or -1.
func owner(accepted net.Conn, pids []int) int {
	theirs, ok := accepted.RemoteAddr().(*net.TCPAddr)
	ours, also := accepted.LocalAddr().(*net.TCPAddr)
	if !ok || !also {
		return -1
	}
	inode := inodeOf(theirs.Port, ours.Port)
	if inode == "" {
		return -1
	}
	for i, pid := range pids {
		if pid == 0 {
			continue
		}
		files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		if err != nil {
			continue
		}
		for _, file := range files {
			if what, err := os.Readlink(file); err == nil && what == "socket:["+inode+"]" {
				return i
			}
		}
	}
	return -1
}

// inodeOf returns the inode of the socket on this machine that is bound to the port local and connected to
// the port remote. A server may use an IPv6 socket for IPv4.
func inodeOf(local, remote int) string {
	for _, table := range []string{"/proc/self/net/tcp", "/proc/self/net/tcp6"} {
		if inode := lookUp(table, local, remote); inode != "" {
			return inode
		}
	}
	return ""
}

func lookUp(table string, local, remote int) string {
	f, err := os.Open(table)
	if err != nil {
		return ""
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		// sl local_address rem_address st tx:rx tr:when retrnsmt uid timeout inode …
		column := strings.Fields(lines.Text())
		if len(column) > 9 && portOf(column[1]) == local && portOf(column[2]) == remote {
			return column[9]
		}
	}
	return ""
}

// portOf returns the port of an address as the kernel prints it: both in hexadecimal.
func portOf(address string) int {
	_, port, _ := strings.Cut(address, ":")
	n, err := strconv.ParseUint(port, 16, 16)
	if err != nil {
		return -1
	}
	return int(n)
}
