//go:build linux

package trial

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/penstock/penstock/bench/internal/admin"
	"github.com/penstock/penstock/bench/internal/proc"
)

// A Daemon is a penstock that runs. Its admin listener is the socket admin in its folder.
type Daemon struct {
	proc.Process
	admin.Client
}

// NewDaemon returns a daemon that is not started yet, with a configuration, in a folder.
func NewDaemon(binary, dir, config string) (*Daemon, error) {
	file := filepath.Join(dir, "penstock.yaml")
	if err := os.WriteFile(file, []byte(config), 0o644); err != nil {
		return nil, err
	}
	return DaemonAt(binary, dir, "run", "-c", file), nil
}

// DaemonAt returns a daemon that is not started yet, with a command line.
func DaemonAt(binary, dir string, args ...string) *Daemon {
	return &Daemon{Process: proc.Process{Argv: append([]string{binary}, args...), Dir: dir}, Client: admin.Client{Socket: filepath.Join(dir, "admin")}}
}

// StartDaemon starts a daemon in a new folder, with a configuration that has no admin listener, and waits until it relays.
func StartDaemon(binary, dir, config string) (*Daemon, error) {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	d, err := NewDaemon(binary, dir, fmt.Sprintf("%sadmin: {listen: \"unix://%s/admin\"}\n", config, dir))
	if err == nil {
		err = d.Begin()
	}
	if err == nil {
		err = d.Ready(Patience)
	}
	return d, err
}

// Ready waits until a worker relays, and has restored what the one before left.
func (d *Daemon) Ready(patience time.Duration) (err error) {
	for end := time.Now().Add(patience); time.Now().Before(end) && !d.Over(); time.Sleep(10 * time.Millisecond) {
		if _, err = d.Get("/readyz"); err == nil {
			return nil
		}
	}
	if failed := d.Failed(); failed != nil {
		err = failed
	}
	return fmt.Errorf("no worker is ready: %w\n%s", err, d.LogTail(20))
}

// LogTail returns the last lines of its log.
func (d *Daemon) LogTail(n int) string {
	b, _ := os.ReadFile(filepath.Join(d.Dir, "output"))
	return Tail(string(b), n)
}

// Tail returns the last lines of a text.
func Tail(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
