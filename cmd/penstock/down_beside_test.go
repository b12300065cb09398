package main

import (
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
)

// hanging starts a real Redis that can be made to hang, and returns its address: the kernel goes on to accept connections for it.
func hanging(t *testing.T) (at string, p *os.Process) {
	t.Helper()
	at = "127.0.0.1:" + testnet.Port(t)
	_, port, _ := net.SplitHostPort(at)
	cmd := exec.Command("redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", t.TempDir())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	testwait.Until(t, "redis listens", func() bool { return listens(t, at) })
	return at, cmd.Process
}

// A server hangs: HAProxy and Penstock, with the same configuration, end the sessions of its clients, and those of the clients that have gone to
// the backup meanwhile when it is well again.
func TestConvertedEndsBesideHAProxy(t *testing.T) {
	need(t, "haproxy", "redis-server")
	t.Parallel()
	primary, p := hanging(t)
	backup, _ := hanging(t)
	text := haproxyDefaults + "listen redis\n bind {0}\n option tcp-check\n tcp-check send PING\\r\\n\n tcp-check expect string +PONG\n" +
		" timeout check 5s\n default-server check inter 5s fall 2 rise 2 on-marked-down shutdown-sessions on-marked-up shutdown-backup-sessions\n" +
		" server primary " + primary + "\n server backup " + backup + " backup\n"
	theirs, ours := beside(t, "haproxy.cfg", 1, text, startHAProxy)
	both := func(want string) (conns []net.Conn) {
		t.Helper()
		for _, at := range []string{theirs[0], ours[0]} {
			testwait.Until(t, at+" leads to "+want, func() bool {
				c, err := net.DialTimeout("tcp", at, patience)
				if err != nil {
					return false
				}
				c.SetDeadline(time.Now().Add(patience))
				if isAt(c) != want {
					c.Close()
					return false
				}
				t.Cleanup(func() { c.Close() })
				conns = append(conns, c)
				return true
			})
		}
		return conns
	}
	_, first, _ := net.SplitHostPort(primary)
	_, second, _ := net.SplitHostPort(backup)
	ended := func(what string, conns []net.Conn) {
		t.Helper()
		start := time.Now()
		for i, c := range conns {
			mustEnd(t, c)
			t.Logf("%s: %s ends the session after %v", what, []string{"HAProxy", "Penstock"}[i], time.Since(start).Round(time.Millisecond))
		}
	}
	conns := both(first)
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	ended("the server hangs", conns)
	conns = both(second)
	if err := p.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	ended("it is well again", conns)
	both(first)
}

// isAt returns the port of the Redis that a client has reached; empty: none.
func isAt(c net.Conn) string {
	if _, err := c.Write([]byte("CONFIG GET port\r\n")); err != nil {
		return ""
	}
	var answer []byte
	for b := make([]byte, 256); ; {
		n, err := c.Read(b)
		if answer = append(answer, b[:n]...); err != nil {
			return ""
		}
		// *2, $4 port, $N PORT
		if lines := splitLines(answer); len(lines) == 5 {
			return lines[4]
		}
	}
}

// splitLines returns the complete lines of an answer.
func splitLines(answer []byte) []string {
	lines := strings.Split(string(answer), "\r\n")
	return lines[:len(lines)-1]
}
