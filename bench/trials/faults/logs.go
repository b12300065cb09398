//go:build linux

package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A reader reads what the relay logs, until it is told to stop.
type reader struct {
	stopped atomic.Bool
	lines   atomic.Int64
	from    io.Reader
	file    *os.File // of a pipe, the end that is written to
}

func (r *reader) run() {
	b := make([]byte, 65536)
	for {
		for r.stopped.Load() {
			time.Sleep(10 * time.Millisecond)
		}
		n, err := r.from.Read(b)
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
		for _, c := range b[:n] {
			if c == '\n' {
				r.lines.Add(1)
			}
		}
	}
}

// block makes that nothing more can be written: nobody reads, and what can be filled is full.
func (r *reader) block() {
	r.stopped.Store(true)
	if r.file == nil {
		return
	}
	// The read that is under way may still take something.
	for range 3 {
		time.Sleep(20 * time.Millisecond)
		fill(r.file)
	}
}

// fill writes to a pipe until it is full. Whoever else writes to it still blocks, because the description
// is another one.
func fill(f *os.File) {
	fd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	for size := 65536; size > 0; {
		if _, err := unix.Write(fd, make([]byte, size)); err != nil {
			size /= 2
		}
	}
}

// logs makes the place where the relay logs to.
func (w *testbed) logs() error {
	switch w.k.needs.Log {
	case "full":
		dir := filepath.Join(w.dir, "small")
		if err := os.Mkdir(dir, 0o777); err != nil {
			return err
		}
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=256k"); err != nil {
			return fmt.Errorf("mount a small file system: %w", err)
		}
		w.setup.log = filepath.Join(dir, "log")
	case "fifo":
		if err := syscall.Mkfifo(w.setup.log, 0o666); err != nil {
			return err
		}
		f, err := os.OpenFile(w.setup.log, os.O_RDWR, 0)
		if err != nil {
			return err
		}
		w.reader = &reader{from: f, file: f}
	case "syslog":
		c, err := net.ListenPacket("unixgram", w.setup.log)
		if err != nil {
			return err
		}
		w.reader = &reader{from: c.(*net.UnixConn)}
	}
	if w.reader != nil {
		go w.reader.run()
	}
	return nil
}

// output is what the relay has as its standard output and error.
func (w *testbed) output() (*os.File, error) {
	log := w.k.needs.Log
	if log == "stderr" {
		read, write, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		w.reader = &reader{from: read, file: write}
		go w.reader.run()
		return write, nil
	}
	path := filepath.Join(w.dir, "output")
	if w.r == haproxy && (log == "full" || log == "fifo" || log == "file") {
		path = w.setup.log // it opens no file, and logs to its standard output
	}
	return os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
}
