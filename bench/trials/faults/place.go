//go:build linux

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
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
func (w *testbed) cgroup(limit int64) (string, error) {
	name := "penstock-faults-" + filepath.Base(w.dir)
	var last error
	for _, try := range []struct{ root, is, file string }{{"/sys/fs/cgroup", "cgroup.controllers", "memory.max"}, {"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.limit_in_bytes"}} {
		if _, err := os.Stat(filepath.Join(try.root, try.is)); err != nil {
			last = err
			continue
		}
		dir := filepath.Join(try.root, name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			last = err
			continue
		}
		w.cleanup = append(w.cleanup, func() {
			for end := time.Now().Add(patience); os.Remove(dir) != nil && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			}
		})
		if last = setLimit(filepath.Join(dir, try.file), limit); last == nil {
			return dir, nil
		}
	}
	return "", last
}

func setLimit(path string, limit int64) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = fmt.Fprint(f, limit)
	return errors.Join(err, f.Close())
}

// syslog takes what relays log, and counts what HAProxy says of how its sessions ended
// (configuration.txt, 8.5, termination state).
func (w *testbed) syslog() error {
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
