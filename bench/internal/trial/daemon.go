//go:build linux

package trial

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// A Daemon is a penstock that runs. Its admin listener is the socket admin in its folder.
type Daemon struct {
	Process
	Timeout time.Duration // of Get; 0: Patience
	client  http.Client
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
	d := &Daemon{Process: Process{Argv: append([]string{binary}, args...), Dir: dir}}
	d.client.Transport = &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", d.Admin())
	}}
	return d
}

// Admin returns the path of the admin listener.
func (d *Daemon) Admin() string { return filepath.Join(d.Dir, "admin") }

// Get returns an answer of the admin listener.
func (d *Daemon) Get(path string) ([]byte, error) {
	return d.ask(http.MethodGet, path, "", cmp.Or(d.Timeout, Patience))
}

// Ask sends a request to the admin listener, with a body as JSON unless it is empty.
func (d *Daemon) Ask(method, path, body string) ([]byte, error) {
	return d.ask(method, path, body, Patience)
}

// ErrNoWorker is the error of a request that no worker has answered: it starts, or hands over, or has ended.
var ErrNoWorker = errors.New("no worker answers")

func (d *Daemon) ask(method, path, body string, patience time.Duration) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "http://localhost"+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := d.client.Do(req)
	if err != nil {
		return nil, errors.Join(ErrNoWorker, err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return nil, errors.Join(ErrNoWorker, err)
	case resp.StatusCode == http.StatusServiceUnavailable:
		return nil, fmt.Errorf("%w: %s", ErrNoWorker, bytes.TrimSpace(b))
	case resp.StatusCode/100 != 2:
		return nil, fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, bytes.TrimSpace(b))
	}
	return b, nil
}

// Metrics returns a scrape.
func (d *Daemon) Metrics() (Metrics, error) {
	text, err := d.Get("/metrics")
	return ParseMetrics(text), err
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
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
