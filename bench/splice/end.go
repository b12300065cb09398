//go:build linux

package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/penstock/penstock/bench/internal/child"
)

// An end is what the child at one end of a transfer is told. It holds the connection as its third file.
type end struct {
	Role        string // write or read
	Size, Total int
}

// startEnd returns a connection of the network whose other end a child holds.
// The child waits for release.
func startEnd(network string, e end) (net.Conn, *child.Child, error) {
	ours, theirs, err := pair(network)
	if err != nil {
		return nil, nil, err
	}
	defer theirs.Close()
	c, err := e.spawn(theirs)
	if err != nil {
		ours.Close()
		return nil, nil, err
	}
	return ours, c, nil
}

func (e end) spawn(conn net.Conn) (*child.Child, error) {
	file, err := conn.(interface{ File() (*os.File, error) }).File()
	if err != nil {
		return nil, err
	}
	defer file.Close()
	cmd, err := child.Command("splice-end", e)
	if err != nil {
		return nil, err
	}
	cmd.ExtraFiles = []*os.File{file}
	c, err := child.Start(cmd)
	if err == nil {
		_, err = c.Line()
	}
	if err != nil {
		return nil, fmt.Errorf("the %s end did not start: %w", e.Role, err)
	}
	return c, nil
}

// release lets a child begin.
func release(c *child.Child) { c.In.Write([]byte{1}) }

// stop waits for a child, which ends when its stream does. It returns an error if the child did
// not see what it should.
func stop(c *child.Child) error {
	if err := c.Wait(); err != nil {
		return fmt.Errorf("end of the transfer: %w", err)
	}
	return nil
}

// play is the child: it writes total bytes in chunks of size, or reads to
// the end of the stream and counts.
func play(e *end) error {
	conn, err := net.FileConn(os.NewFile(3, "conn"))
	if err != nil {
		return err
	}
	buf := make([]byte, e.Size)
	fmt.Println("ready")
	if _, err := os.Stdin.Read(buf[:1]); err != nil {
		return nil // the transfer was cancelled
	}
	if e.Role == "write" {
		for left := e.Total; left > 0; left -= e.Size {
			if _, err := conn.Write(buf); err != nil {
				return err
			}
		}
		return conn.Close()
	}
	got := 0
	for {
		n, err := conn.Read(buf)
		got += n
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		if got == e.Total {
			break
		}
	}
	if got != e.Total {
		return fmt.Errorf("%d bytes of %d arrived", got, e.Total)
	}
	return nil
}

func splitNet(name string) (from, to string) {
	from, to, _ = strings.Cut(name, "-to-")
	return from, to
}

// pair returns the two ends of a connection.
func pair(network string) (a, b net.Conn, err error) {
	addr := "127.0.0.1:0"
	if network == "unix" {
		dir, err := os.MkdirTemp("", "penstock-bench-")
		if err != nil {
			return nil, nil, err
		}
		defer os.RemoveAll(dir)
		addr = filepath.Join(dir, "s")
	}
	ln, err := net.Listen(network, addr)
	if err != nil {
		return nil, nil, err
	}
	defer ln.Close()
	if a, err = net.Dial(network, ln.Addr().String()); err != nil {
		return nil, nil, err
	}
	if b, err = ln.Accept(); err != nil {
		a.Close()
		return nil, nil, err
	}
	for _, c := range []net.Conn{a, b} {
		if err := reno(c); err != nil {
			a.Close()
			b.Close()
			return nil, nil, err
		}
	}
	return a, b, nil
}

// reno makes the figures independent of the machine's congestion control: one that paces, such as
// BBR, also does so on loopback, and the benchmark would measure its timers.
func reno(c net.Conn) error {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return nil
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return err
	}
	var set error
	err = raw.Control(func(fd uintptr) {
		set = unix.SetsockoptString(int(fd), syscall.IPPROTO_TCP, unix.TCP_CONGESTION, "reno")
	})
	if err == nil {
		err = set
	}
	return err
}
