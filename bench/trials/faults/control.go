//go:build linux

package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/penstock/penstock/bench/internal/admin"
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

// daemon is the client of penstock's admin listener.
func (w *testbed) daemon() *admin.Client { return &admin.Client{Socket: filepath.Join(w.dir, "admin")} }

// reloadPenstock asks for a reload. A configuration that is refused is no error here.
func reloadPenstock(w *testbed) error {
	_, err := w.daemon().Ask(http.MethodPost, "/v1/reload", "{}")
	if err != nil && !errors.Is(err, admin.ErrNoWorker) {
		err = fmt.Errorf("%w: %w", errRefused, err)
	}
	return err
}

// errRefused is returned for a configuration that the relay refused.
var errRefused = errors.New("configuration refused")

// countPenstock sums up the metrics that say why something ended or was refused.
func countPenstock(w *testbed) map[string]float64 {
	sums := make(map[string]float64)
	m, err := w.daemon().Metrics()
	if err != nil {
		return sums
	}
	for name, by := range map[string]string{"penstock_flows_ended_total": "cause", "penstock_refusals_total": "reason", "penstock_datagrams_dropped_total": "reason",
		"penstock_overload_shed_total": "action", "penstock_log_lines_dropped_total": "log"} {
		for value, n := range m.Sum(name, by) {
			sums[value] += n
		}
	}
	for _, plain := range []string{"penstock_accept_errors_total", "penstock_accept_pauses_total", "penstock_datagrams_lost_total", "penstock_dropped_bytes_total", "penstock_keeper_restored_flows_total"} {
		if n, ok := m.Values[plain]; ok {
			sums[strings.TrimSuffix(strings.TrimPrefix(plain, "penstock_"), "_total")] += n
		}
	}
	delete(sums, "end") // as flows should
	return sums
}

// stats asks HAProxy's socket.
func (w *testbed) stats(command string) (string, error) {
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
func countHAProxy(w *testbed) map[string]float64 {
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

// renew has a master make new workers.
func renew(w *testbed, sig syscall.Signal, once bool, patience time.Duration) error {
	if proc.Renew(w.service.First(), sig, once, patience) != nil {
		return errRefused
	}
	return nil
}

// countNginx counts the status of sessions (ngx_stream_core_module, $status) and the lines of the log of
// errors.
func countNginx(w *testbed) map[string]float64 {
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
