//go:build linux

package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// times are durations, with their percentiles.
type times []time.Duration

func (t times) at(p float64) time.Duration {
	if len(t) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(t))
	return s[min(int(p*float64(len(s))), len(s)-1)]
}

func (t times) String() string {
	if len(t) == 0 {
		return "none"
	}
	ms := time.Millisecond
	return fmt.Sprintf("p50 %v, p99 %v, longest %v (of %d)", t.at(0.5).Round(ms), t.at(0.99).Round(ms), t.at(1).Round(ms), len(t))
}

// figures returns the percentiles as a line of the Go benchmark format has them.
func (t times) figures() string {
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	return fmt.Sprintf("%.1f p50-ms\t%.1f p99-ms\t%.1f max-ms\t%d relays", ms(t.at(0.5)), ms(t.at(0.99)), ms(t.at(1)), len(t))
}

// A reading is what was counted so far.
type reading struct {
	cpu      time.Duration // of the server
	all      time.Duration // of the machine: what its CPUs were not idle
	in, out  float64       // bytes of the server's connections, as far as they are open
	sockets  float64       // of clients
	requests float64
}

func (r reading) since(a reading) reading {
	return reading{r.cpu - a.cpu, r.all - a.all, r.in - a.in, r.out - a.out, r.sockets, r.requests - a.requests}
}

// minus takes a share of another reading away.
func (r *reading) minus(a reading, share float64) {
	part := func(d time.Duration) time.Duration { return time.Duration(float64(d) * share) }
	r.cpu -= part(a.cpu)
	r.all -= part(a.all)
	r.in -= a.in * share
	r.out -= a.out * share
	r.requests -= a.requests * share
}

func (r reading) print(out io.Writer, what string, relays int, took time.Duration) {
	sec, n := took.Seconds(), float64(max(1, relays))
	fmt.Fprintf(out, "# %s: CPU of the server %.1f ms, of the whole machine %.1f ms; in %.0f bytes, out %.0f bytes", what, 1000*r.cpu.Seconds()/sec, 1000*r.all.Seconds()/sec, r.in/sec, r.out/sec)
	if r.requests != 0 {
		fmt.Fprintf(out, "; %.1f requests", r.requests/sec)
	}
	fmt.Fprintf(out, ", each per second (or publish)\n#   for each relay: in %.1f bytes, out %.1f bytes", r.in/sec/n, r.out/sec/n)
	if r.requests != 0 {
		fmt.Fprintf(out, ", %.4f requests", r.requests/sec/n)
	}
	fmt.Fprintf(out, "; %.0f connections\n", r.sockets)
}

// measure reads twice.
func measure(s server, d time.Duration) (reading, error) {
	a, err := read(s)
	if err != nil {
		return a, err
	}
	time.Sleep(d)
	b, err := read(s)
	return b.since(a), err
}

func read(s server) (r reading, err error) {
	if r.cpu, err = processCPU(s.pid()); err != nil {
		return r, err
	}
	if r.all, err = machineCPU(); err != nil {
		return r, err
	}
	if r.requests, err = s.requests(); err != nil {
		return r, err
	}
	r.in, r.out, r.sockets, err = traffic(s.port(), s.pid())
	return r, err
}

// tick is the unit of the kernel's accounts (USER_HZ, 100 on all architectures of Go; proc_pid_stat(5)).
const tick = 10 * time.Millisecond

// processCPU returns the user and system time of a process.
func processCPU(pid int) (time.Duration, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	return ticks(f[11:13])
}

// machineCPU returns the time that the machine's CPUs were not idle, without what a hypervisor took away.
func machineCPU() (time.Duration, error) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	line, _, _ := strings.Cut(string(b), "\n")
	f := strings.Fields(line) // cpu user nice system idle iowait irq softirq
	return ticks(append(f[1:4:4], f[6:8]...))
}

func ticks(fields []string) (sum time.Duration, err error) {
	for _, f := range fields {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, err
		}
		sum += time.Duration(n) * tick
	}
	return sum, nil
}

// traffic returns the bytes that the connections of a server's port have received and sent, as ss(8) says them; those
// of the server with itself do not count. A connection that has ended is not in it any more.
func traffic(port string, pid int) (in, out, sockets float64, err error) {
	text, err := exec.Command("ss", "-tinHOp", "state", "established", "sport", "=", ":"+port, "or", "dport", "=", ":"+port).Output()
	if err != nil {
		return 0, 0, 0, fmt.Errorf("ss: %w", err)
	}
	own := fmt.Sprintf("pid=%d,", pid)
	inside := map[string]bool{} // the server's ends of its connections with itself, as their peers
	lines := slices.Collect(strings.Lines(string(text)))
	for _, line := range lines {
		if f := strings.Fields(line); len(f) > 4 && strings.Contains(line, own) && strings.HasSuffix(f[3], ":"+port) {
			inside[f[2]] = true
		}
	}
	for _, line := range lines {
		f := strings.Fields(line)
		if len(f) < 5 || !strings.HasSuffix(f[2], ":"+port) || inside[f[3]] {
			continue
		}
		sockets++
		for _, word := range f {
			if v, ok := strings.CutPrefix(word, "bytes_sent:"); ok {
				n, _ := strconv.ParseFloat(v, 64)
				out += n
			} else if v, ok := strings.CutPrefix(word, "bytes_received:"); ok {
				n, _ := strconv.ParseFloat(v, 64)
				in += n
			}
		}
	}
	return in, out, sockets, nil
}

// watchRequests counts the server's requests from now on. The function that it returns ends that, and returns the most
// in a second, all of them, and how many came in each second.
func watchRequests(s server) func() (most, total float64, curve string) {
	stop, done := make(chan struct{}), make(chan struct{})
	var each []float64
	last := 0.0
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Second):
			}
			n, err := s.requests()
			if err != nil || n < last {
				continue
			}
			each, last = append(each, n-last), n
		}
	}()
	return func() (most, total float64, curve string) {
		close(stop)
		<-done
		var text []string
		for _, n := range each {
			most, total = max(most, n), total+n
			text = append(text, fmt.Sprintf("%.0f", n))
		}
		return most, total, strings.Join(text, " ")
	}
}

// describeMachine writes the date, machine and commit of a result, as the benchmarks do.
func describeMachine(out io.Writer) {
	value := func(path, name string) string {
		b, _ := os.ReadFile(path)
		for line := range strings.Lines(string(b)) {
			if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == name {
				return strings.TrimSpace(v)
			}
		}
		return "unknown"
	}
	kernel, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	load, _ := os.ReadFile("/proc/loadavg")
	commit, _ := exec.Command("git", "describe", "--always", "--dirty", "--abbrev=12").Output()
	fmt.Fprintf(out, "date: %s\ncpu: %d x %s\nmemory: %s\nkernel: %s %s\ngo: %s\ncommit: %s\nload-before: %s\n", time.Now().UTC().Format(time.DateTime), runtime.NumCPU(),
		value("/proc/cpuinfo", "model name"), value("/proc/meminfo", "MemTotal"), strings.TrimSpace(string(kernel)), runtime.GOARCH, runtime.Version(), strings.TrimSpace(string(commit)), strings.TrimSpace(string(load)))
}
