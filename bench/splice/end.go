//go:build linux

package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// end is the child process at one end of a transfer.
type end struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
}

// endArg marks this program as a child.
const endArg = "splice-end"

// startEnd returns a connection of the network whose other end a child holds.
// The child waits for release.
func startEnd(network, role string, size, total int) (net.Conn, *end, error) {
	ours, theirs, err := pair(network)
	if err != nil {
		return nil, nil, err
	}
	defer theirs.Close()
	e, err := spawn(theirs, role, size, total)
	if err != nil {
		ours.Close()
		return nil, nil, err
	}
	return ours, e, nil
}

func spawn(conn net.Conn, role string, size, total int) (*end, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	file, err := conn.(interface{ File() (*os.File, error) }).File()
	if err != nil {
		return nil, err
	}
	defer file.Close()
	e := &end{cmd: exec.Command(self, endArg, role, strconv.Itoa(size), strconv.Itoa(total))}
	e.cmd.ExtraFiles = []*os.File{file}
	e.cmd.Stderr = os.Stderr
	if e.stdin, err = e.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := e.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := e.cmd.Start(); err != nil {
		return nil, err
	}
	if _, err := io.ReadFull(out, make([]byte, 1)); err != nil {
		e.stop()
		return nil, fmt.Errorf("the %s end did not start: %w", role, err)
	}
	return e, nil
}

// release lets the child begin.
func (e *end) release() { e.stdin.Write([]byte{1}) }

// stop waits for the child, which ends when its stream does. It returns an error if the child did
// not see what it should.
func (e *end) stop() error {
	e.stdin.Close()
	if err := e.cmd.Wait(); err != nil {
		return fmt.Errorf("end of the transfer: %w", err)
	}
	return nil
}

// playEnd is the child: it writes total bytes in chunks of size, or reads to
// the end of the stream and counts.
func playEnd(args []string) error {
	size, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	total, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	conn, err := net.FileConn(os.NewFile(3, "conn"))
	if err != nil {
		return err
	}
	buf := make([]byte, size)
	os.Stdout.Write([]byte{1})
	if _, err := os.Stdin.Read(buf[:1]); err != nil {
		return nil // the transfer was cancelled
	}
	if args[0] == "write" {
		for left := total; left > 0; left -= size {
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
		if got == total {
			break
		}
	}
	if got != total {
		return fmt.Errorf("%d bytes of %d arrived", got, total)
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
