//go:build linux

package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/penstock/penstock/bench/internal/proc"
	"github.com/penstock/penstock/splice"
)

// impl is one implementation of carrying a stream to its end.
type impl struct {
	name string
	copy func(dst, src net.Conn) (int64, error)
}

var impls = []impl{
	{"userspace", userspace},
	{"iocopy", func(dst, src net.Conn) (int64, error) { return io.Copy(dst, src) }},
	{"splice", func(dst, src net.Conn) (int64, error) { return splice.Copy(dst, src) }},
}

// userspace is io.Copy as it would be without splice(2): the wrappers hide the methods by which it
// gets there. The buffer is io.Copy's own 32 KiB.
func userspace(dst, src net.Conn) (int64, error) {
	return io.CopyBuffer(struct{ io.Writer }{dst}, struct{ io.Reader }{src}, make([]byte, 32<<10))
}

// nets are the pairs of Go's benchmark, and unix-to-unix, which it lacks.
var nets = []string{"tcp-to-tcp", "unix-to-tcp", "tcp-to-unix", "unix-to-unix"}

// sizes are the chunk sizes of Go's benchmark, 1 KiB to 1 MiB.
func sizes() []int {
	var s []int
	for shift := 10; shift <= 20; shift++ {
		s = append(s, 1<<shift)
	}
	return s
}

// bench is one case: chunks of size bytes from a writer over the first network
// of net, through this process, to a reader over the second.
type bench struct {
	net  string
	size int
}

func (c bench) name(m impl) string {
	return fmt.Sprintf("BenchmarkSplice/net=%s/size=%d/impl=%s", c.net, c.size, m.name)
}

// sample is the cost of one transfer.
type sample struct {
	bytes float64
	wall  time.Duration
	cpu   time.Duration // user and system time of the copying process
}

// run carries n chunks. Both ends are processes that are started before the clock.
func (c bench) run(m impl, n int) (s sample, err error) {
	from, to := splitNet(c.net)
	total := c.size * n
	s.bytes = float64(total)
	src, writer, err := startEnd(from, end{"write", c.size, total})
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, stop(writer)) }()
	defer src.Close()
	dst, reader, err := startEnd(to, end{"read", c.size, total})
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, stop(reader)) }()
	defer dst.Close()

	self := []int{os.Getpid()}
	cpu, err := proc.CPU(self)
	if err != nil {
		return s, err
	}
	start := time.Now()
	release(reader)
	release(writer)
	written, err := m.copy(dst, src)
	s.wall = time.Since(start)
	if err != nil {
		return s, fmt.Errorf("%s: %w", c.name(m), err)
	}
	if written != int64(total) {
		return s, fmt.Errorf("%s: carried %d bytes of %d", c.name(m), written, total)
	}
	after, err := proc.CPU(self)
	s.cpu = after - cpu
	return s, err
}
