//go:build linux

package main

import (
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// realRoot reports whether there are other users in this user namespace.
func realRoot() bool {
	b, _ := os.ReadFile("/proc/self/uid_map")
	f := strings.Fields(string(b))
	n := 0
	if len(f) == 3 {
		n, _ = strconv.Atoi(f[2])
	}
	return n > 65534
}

func chownAll(dir string, user int) error {
	return filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Chown(path, user, user)
	})
}

// cgroup makes a cgroup with a limit of memory, of version 2 or 1, and returns its folder.
func (w *world) cgroup(limit int64) (string, error) {
	name := fmt.Sprintf("penstock-faults-%s", filepath.Base(w.dir))
	var last error
	for _, try := range []struct{ root, file string }{{"/sys/fs/cgroup", "memory.max"}, {"/sys/fs/cgroup/memory", "memory.limit_in_bytes"}} {
		dir := filepath.Join(try.root, name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			last = err
			continue
		}
		w.cleanup = append(w.cleanup, func() { os.Remove(dir) })
		if err := os.WriteFile(filepath.Join(dir, try.file), []byte(strconv.FormatInt(limit, 10)), 0); err != nil {
			os.Remove(dir)
			last = err
			continue
		}
		return dir, nil
	}
	return "", last
}

// output is what the relay has as its standard output and error.
func (w *world) output() (*os.File, error) {
	path := filepath.Join(w.dir, "output")
	if w.r == haproxy && w.k.needs.Log == "file" {
		path = w.setup.log // it writes its log there
	}
	return os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o644)
}

// syslog takes what relays log, and counts what HAProxy says of how its sessions ended
// (configuration.txt, 8.5, termination state).
func (w *world) syslog() error {
	c, err := net.ListenPacket("udp", fmt.Sprintf("%s:%d", worldIP, syslogPort))
	if err != nil {
		return err
	}
	c.(*net.UDPConn).SetReadBuffer(8 << 20)
	go func() {
		b := make([]byte, 65536)
		for {
			n, _, err := c.ReadFrom(b)
			if err != nil {
				return
			}
			// ... main main/m1 1/0/3 448 -- 1/1/0/0/0 0/0
			f := strings.Fields(string(b[:n]))
			for i, word := range f {
				if len(word) == 2 && i > 3 && strings.Count(f[i-2], "/") == 2 && word != "--" {
					w.note("state "+word, 1)
				}
			}
		}
	}()
	return nil
}

// fifo makes the log a FIFO that somebody has open and nobody reads.
func fifo(path string) (*os.File, error) {
	if err := syscall.Mkfifo(path, 0o666); err != nil {
		return nil, err
	}
	return os.OpenFile(path, os.O_RDWR, 0)
}
