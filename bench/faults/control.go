//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/penstock/penstock/bench/internal/proc"
)

// grown returns the counters that are larger than before.
func grown(before, after map[string]float64) map[string]float64 {
	more := make(map[string]float64)
	for name, v := range after {
		if d := v - before[name]; d > 0 {
			more[name] = d
		}
	}
	return more
}

func (w *world) admin() *http.Client {
	return &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(w.dir, "admin.sock"))
	}}}
}

// reloadPenstock asks for a reload. A configuration that is refused is no error here.
func reloadPenstock(w *world) error {
	resp, err := w.admin().Post("http://localhost/v1/reload", "application/json", nil)
	if err != nil {
		return err
	}
	io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%w: %s", errRefused, resp.Status)
	}
	return nil
}

// errRefused is returned for a configuration that the relay refused.
var errRefused = errors.New("configuration refused")

// countPenstock sums up the metrics that say why something ended or was refused.
func countPenstock(w *world) map[string]float64 {
	sums := make(map[string]float64)
	resp, err := w.admin().Get("http://localhost/metrics")
	if err != nil {
		return sums
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	for line := range strings.Lines(string(b)) {
		name, rest, ok := strings.Cut(line, "{")
		by, ok2 := map[string]string{"penstock_flows_ended_total": "cause", "penstock_refusals_total": "reason", "penstock_datagrams_dropped_total": "reason",
			"penstock_overload_shed_total": "action", "penstock_log_lines_dropped_total": "log"}[name]
		if !ok || !ok2 {
			for _, plain := range []string{"penstock_accept_errors_total", "penstock_accept_pauses_total", "penstock_datagrams_lost_total", "penstock_dropped_bytes_total", "penstock_keeper_restored_flows_total"} {
				if v, ok := strings.CutPrefix(line, plain+" "); ok {
					n, _ := strconv.ParseFloat(strings.TrimSpace(v), 64)
					sums[strings.TrimSuffix(strings.TrimPrefix(plain, "penstock_"), "_total")] += n
				}
			}
			continue
		}
		_, value, _ := strings.Cut(rest, by+`="`)
		value, _, _ = strings.Cut(value, `"`)
		n, _ := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndexByte(line, ' ')+1:]), 64)
		sums[value] += n
	}
	delete(sums, "end") // as flows should
	return sums
}

// stats asks HAProxy's socket.
func (w *world) stats(command string) (string, error) {
	c, err := net.DialTimeout("unix", filepath.Join(w.dir, "stats.sock"), time.Second)
	if err != nil {
		return "", err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := c.Write([]byte(command + "\n")); err != nil {
		return "", err
	}
	b, err := io.ReadAll(c)
	return string(b), err
}

// countHAProxy sums up the errors of its statistics (management.txt, 9.1).
func countHAProxy(w *world) map[string]float64 {
	sums := make(map[string]float64)
	text, err := w.stats("show stat")
	if err != nil {
		return sums
	}
	lines := strings.Split(text, "\n")
	names := strings.Split(strings.TrimPrefix(lines[0], "# "), ",")
	for _, line := range lines[1:] {
		f := strings.Split(line, ",")
		for i, name := range names {
			switch name {
			case "econ", "eresp", "ereq", "dreq", "dcon", "wretr", "wredis":
				if i < len(f) && len(f) > 1 && (f[1] == "BACKEND" || f[1] == "FRONTEND") {
					n, _ := strconv.ParseFloat(f[i], 64)
					sums[name] += n
				}
			}
		}
	}
	return sums
}

// reloadHAProxy sends SIGUSR2 to the master, again if a signal was lost while it executed itself.
func reloadHAProxy(w *world) error {
	main := w.service.first()
	before := newestChild(main)
	last := time.Time{}
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if newestChild(main) > before {
			return nil
		}
		if time.Since(last) > 300*time.Millisecond {
			syscall.Kill(main, syscall.SIGUSR2)
			last = time.Now()
		}
	}
	return errRefused
}

// countNginx counts the status of sessions (ngx_stream_core_module, $status) and the lines of the log of
// errors.
func countNginx(w *world) map[string]float64 {
	sums := make(map[string]float64)
	b, _ := os.ReadFile(filepath.Join(w.dir, "status.log"))
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) == 2 && f[1] != "200" {
			sums["status "+f[1]]++
		}
	}
	b, _ = os.ReadFile(filepath.Join(w.dir, "error.log"))
	if n := strings.Count(string(b), "\n"); n > 0 {
		sums["error lines"] = float64(n)
	}
	return sums
}

// reloadNginx sends SIGHUP to the master.
func reloadNginx(w *world) error {
	main := w.service.first()
	before := newestChild(main)
	if err := syscall.Kill(main, syscall.SIGHUP); err != nil {
		return err
	}
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if newestChild(main) > before {
			return nil
		}
	}
	return errRefused
}

// newestChild returns the youngest child of a process, by its number.
func newestChild(pid int) int {
	return slices.Max(append([]int{0}, proc.Tree(pid)[1:]...))
}
