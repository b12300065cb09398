//go:build linux

// Members measures what a large group whose members change all the time costs a daemon: 10,000 members in etcd, and 100
// changes a second, with and without clients.
//
//	go run ./bench/trials/members -rounds 5 -out result.txt
//	go run ./bench/trials/members -balance maglev -members 1000
//
// All members are addresses of 127.0.0.0/8, behind which one listener echoes.
package main

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/penstock/penstock/bench/internal/proc"
	"github.com/penstock/penstock/bench/internal/registry"
	"github.com/penstock/penstock/bench/internal/stat"
	"github.com/penstock/penstock/bench/internal/trial"
)

// settings are the flags.
type settings struct {
	trial.Run
	members int
	changes int // per second
	rate    int // connects per second
	rounds  int
	loops   int
	warm    time.Duration
	window  time.Duration
	balance string
}

func main() {
	var s settings
	s.Flags(flag.CommandLine)
	flag.IntVar(&s.members, "members", 10_000, "members of the group")
	flag.IntVar(&s.changes, "changes", 100, "changes of members per second")
	flag.IntVar(&s.rate, "rate", 1000, "connects per second; each sends 64 bytes, waits for their echo, and closes")
	flag.IntVar(&s.rounds, "rounds", 5, "rounds, each with a window of every kind")
	flag.IntVar(&s.loops, "loops", 1, "event loops")
	flag.DurationVar(&s.warm, "warm", 2*time.Second, "time before a window")
	flag.DurationVar(&s.window, "window", 10*time.Second, "length of a window")
	flag.StringVar(&s.balance, "balance", "p2c", "the group's balancer")
	flag.Parse()
	trial.Main("members", s.run)
}

// kind is a kind of window.
type kind struct{ changes, rate int }

func (k kind) String() string { return fmt.Sprintf("changes=%d/rate=%d", k.changes, k.rate) }

func (s *settings) run() error {
	end, err := s.Begin(100_000)
	if err != nil {
		return err
	}
	defer end()
	out, dir := s.Out, s.Dir
	fmt.Fprintf(out, "members: %d\nbalance: %s\nloops: %d\nwindow: %v\n", s.members, s.balance, s.loops, s.window)
	etcd, err := registry.NewEtcd(filepath.Join(dir, "etcd"))
	if err != nil {
		return err
	}
	defer etcd.Close()
	u, err := newUpstream()
	if err != nil {
		return err
	}
	defer u.close()
	m := newMembers(etcd, u.port)
	d, err := startDaemon(s, dir, etcd)
	if err != nil {
		return err
	}
	defer d.end()
	few := min(10, s.members)
	before, err := s.fill(m, d, few)
	if err != nil {
		return err
	}
	start := time.Now()
	after, err := s.fill(m, d, s.members)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "# %d members are known %v after the first of them was written; resident memory %d KB with %d members, %d KB with %d", s.members, time.Since(start).Round(10*time.Millisecond), before, few, after, s.members)
	if s.members > few {
		fmt.Fprintf(out, ": %.2f KB for each", float64(after-before)/float64(s.members-few))
	}
	fmt.Fprint(out, "\n\n")
	kinds := []kind{{0, s.rate}, {s.changes, s.rate}, {0, 0}, {s.changes, 0}}
	figures := map[kind]map[string][]float64{}
	for range s.rounds {
		for _, k := range kinds {
			w, err := s.measure(m, d, etcd, k)
			if err != nil {
				return fmt.Errorf("%v: %w\n%s", k, err, d.LogTail(10))
			}
			fmt.Fprintf(out, "BenchmarkMembers/members=%d/balance=%s/%v\t1", s.members, s.balance, k)
			for _, f := range w {
				fmt.Fprintf(out, "\t%.6g %s", f.value, f.unit)
				if figures[k] == nil {
					figures[k] = map[string][]float64{}
				}
				figures[k][f.unit] = append(figures[k][f.unit], f.value)
			}
			fmt.Fprintln(out)
		}
	}
	units := slices.Sorted(maps.Keys(figures[kinds[0]]))
	fmt.Fprintf(out, "\n# medians of %d rounds\n#%21s", s.rounds, "")
	for _, unit := range units {
		fmt.Fprintf(out, " %14s", unit)
	}
	for _, k := range kinds {
		fmt.Fprintf(out, "\n# %-20v", k)
		for _, unit := range units {
			fmt.Fprintf(out, " %14.4g", stat.Median(figures[k][unit]))
		}
	}
	fmt.Fprintln(out)
	if n := u.wrong.Load(); n > 0 {
		return fmt.Errorf("%d messages were wrong", n)
	}
	return d.Failed()
}

// fill adds members until there are n, waits until the daemon has them, and returns its resident memory in KB.
func (s *settings) fill(m *members, d *daemon, n int) (kb int64, err error) {
	if err := m.fill(n); err != nil {
		return 0, err
	}
	if err := d.wait(n); err != nil {
		return 0, err
	}
	time.Sleep(s.warm)
	return proc.RSS([]int{d.First()})
}

// A figure is one of a window.
type figure struct {
	value float64
	unit  string
}

// measure runs one window.
func (s *settings) measure(m *members, d *daemon, etcd *registry.Etcd, k kind) ([]figure, error) {
	stop, made := make(chan struct{}), m.made.Load()
	changed := make(chan result[int], 1)
	go func() {
		n, err := m.change(k.changes, stop)
		changed <- result[int]{n, err}
	}()
	l := newLoad(d.addr, k.rate)
	time.Sleep(s.warm)
	l.Forget()
	type reading struct {
		at                      time.Time
		daemon, etcd, own, idle time.Duration
		busy                    float64
	}
	read := func() (r reading, err error) {
		r.at = time.Now()
		var errs [5]error
		r.daemon, errs[0] = proc.CPU([]int{d.First()})
		r.etcd, errs[1] = proc.CPU([]int{etcd.PID()})
		r.own, errs[2] = proc.CPU([]int{os.Getpid()})
		r.idle, errs[3] = proc.Idle("")
		r.busy, errs[4] = d.busy()
		return r, errors.Join(errs[:]...)
	}
	a, err := read()
	if err != nil {
		return nil, err
	}
	time.Sleep(s.window)
	// A busy machine may have done nothing in a short window; it is as long as one of each kind takes.
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(s.window / 10) {
		if served, _ := l.Read(0); (k.rate == 0 || served.Served > 0) && (k.changes == 0 || m.made.Load() > made) {
			break
		}
	}
	b, err := read()
	if err != nil {
		return nil, err
	}
	p50, p99, most, n, failed, wrong := end(l)
	close(stop)
	c := <-changed
	if err := errors.Join(c.err, wrong); err != nil {
		return nil, err
	}
	rss, err := proc.RSS([]int{d.First()})
	if err != nil {
		return nil, err
	}
	took := b.at.Sub(a.at)
	share := func(x time.Duration) float64 { return 100 * x.Seconds() / took.Seconds() }
	all := time.Duration(proc.Count("")) * took
	daemon, server, own := b.daemon-a.daemon, b.etcd-a.etcd, b.own-a.own
	list := []figure{
		{100 * (b.busy - a.busy) / took.Seconds() / float64(s.loops), "loop-busy-%"},
		{share(daemon), "daemon-cpu-%"},
		{share(server), "etcd-cpu-%"},
		{share(max(0, all-daemon-server-own-(b.idle-a.idle))), "others-%"},
		{float64(rss), "rss-KB"},
		{float64(c.value), "changes"},
	}
	if k.rate > 0 {
		list = append(list, figure{float64(n), "connects"}, figure{float64(p50.Microseconds()), "p50-us"}, figure{float64(p99.Microseconds()), "p99-us"}, figure{float64(most.Microseconds()), "max-us"}, figure{float64(failed), "failed"})
		if n > 0 {
			list = append(list, figure{1e6 * (b.busy - a.busy) / float64(n), "loop-us/op"})
		}
	}
	return list, d.Failed()
}

type result[T any] struct {
	value T
	err   error
}
