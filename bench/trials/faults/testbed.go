//go:build linux

package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/penstock/penstock/bench/internal/peer"
	"github.com/penstock/penstock/bench/internal/proc"
	"github.com/penstock/penstock/bench/internal/trial"
	"github.com/penstock/penstock/bench/internal/world"
)

// patience bounds each wait for something that must happen.
const patience = trial.Patience

// A cell is what one process measures: one fault, done to one relay.
type cell struct {
	Kind, Relay string
	Dir         string // which it may fill
	Penstock    string
	Short       bool // no figures, only what must hold at any speed
}

// members is how many upstreams there are.
const members = 4

// testbed is what a fault acts on: members, flows and the relay between them.
type testbed struct {
	cell
	k       *kind
	r       *relay
	dir     string
	began   time.Time
	space   *space
	link    *link
	members []*member
	service *service
	meter   *meter
	old     *oldFlows
	fresh   *newClients
	freshUD *newClients
	setup   setup
	dns     *nameServer
	reader  *reader

	over    chan struct{} // closed at the end
	now     atomic.Int32  // phase
	ended   atomic.Int64  // when the fault ended, in ns since the world began
	hit     map[int]bool  // members that had the fault
	replace atomic.Bool   // the fault replaces processes that carry traffic: their ends are no complaint
	cleanup []func()

	mu    sync.Mutex
	notes map[string]float64
}

// begins is called when the fault has begun: what clients do that come from now on counts as during it.
func (w *testbed) begins() { w.now.Store(int32(during)) }

func (w *testbed) phase() phase        { return phase(w.now.Load()) }
func (w *testbed) faultEnd() time.Time { return w.began.Add(time.Duration(w.ended.Load())) }

// note adds to a figure of the fault.
func (w *testbed) note(name string, n float64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.notes[name] += n
}

// noted returns a figure of the fault.
func (w *testbed) noted(name string) float64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.notes[name]
}

// sleep waits, but not longer than the world lasts.
func (w *testbed) sleep(d time.Duration) {
	select {
	case <-time.After(d):
	case <-w.over:
	}
}

// last is how long a fault of some duration lasts: in the short form less.
func (w *testbed) last(d time.Duration) time.Duration {
	if w.Short {
		return min(d, 1500*time.Millisecond)
	}
	return d
}

// scaled is how many of something there are: in the short form fewer.
func (w *testbed) scaled(n int) int {
	if w.Short {
		return max(1, n/10)
	}
	return n
}

// hits names the members that will have the fault. Old flows at them are counted by themselves.
func (w *testbed) hits(members ...int) {
	for _, m := range members {
		w.hit[m] = true
	}
}

// measureCell is what the process of a cell does.
func measureCell(c *cell) (*outcome, error) {
	w := &testbed{cell: *c, began: time.Now(), over: make(chan struct{}), hit: make(map[int]bool), notes: make(map[string]float64)}
	w.dir, w.k, w.r = w.Dir, findKind(w.Kind), findRelay(w.Relay)
	o := &outcome{Kind: w.Kind, Relay: w.Relay}
	err := w.measure(o)
	for i := len(w.cleanup) - 1; i >= 0; i-- {
		w.cleanup[i]()
	}
	if err != nil && o.Absent == "" {
		o.Error = err.Error()
		if w.service != nil {
			o.Error += "; it printed: " + w.service.Printed()
		}
	}
	o.Seconds = time.Since(w.began).Seconds()
	o.judge(w.k, w.r, w.Short)
	return o, nil
}

func (w *testbed) measure(o *outcome) error {
	if err := mountProc(); err != nil {
		return err
	}
	if err := w.begin(o); err != nil || o.Absent != "" {
		return err
	}
	udp := w.r.udp && !w.k.needs.Wild
	streams, datagrams := 24, 16
	if !udp {
		datagrams = 0
	}
	if err := w.old.begin(streams, datagrams); err != nil {
		return err
	}
	w.fresh = newNewClients(w, "tcp")
	w.fresh.Begin(25 * time.Millisecond)
	if udp {
		w.freshUD = newNewClients(w, "udp")
		w.freshUD.Begin(50 * time.Millisecond)
	}
	time.Sleep(w.last(1800 * time.Millisecond))
	if w.r == penstock {
		if err := w.settled(streams + datagrams); err != nil {
			return err
		}
	}
	w.meter = newMeter(w)
	had := w.r.counters(w)
	o.MemoryBefore, o.FilesBefore = w.meter.uses()
	cpu, from := w.meter.used(), time.Now()
	w.old.mark()
	if !w.k.sudden {
		w.begins()
	}
	if err := w.k.fault(w); err != nil {
		return err
	}
	w.ended.Store(int64(time.Since(w.began)))
	w.now.Store(int32(after))
	w.meter.look()
	o.CPU, o.Lasted = (w.meter.used() - cpu).Seconds(), time.Since(from).Seconds()
	limit := 8 * time.Second
	if w.Short {
		limit = patience
	}
	rest := time.After(w.last(2 * time.Second))
	still := w.old.settle(limit)
	<-rest
	close(w.meter.stop)
	w.meter.done.Wait()
	w.meter.look()
	o.Counters = grown(had, w.r.counters(w))
	o.MemoryPeak, o.FilesPeak, o.FilesAfter, o.Processes = w.meter.peak, w.meter.filesPeak, w.meter.files, w.meter.processes
	var back time.Duration
	o.New, back = w.fresh.finish()
	o.Back = inMillis(back)
	if w.freshUD != nil {
		o.Dgm, _ = w.freshUD.finish()
	}
	o.Old = w.old.finish(w.hit, from, still)
	o.Ends, o.End = w.service.deaths()
	if err := w.service.Failed(); err != nil {
		return fmt.Errorf("start the relay again: %w", err)
	}
	w.service.Kill()
	w.mu.Lock()
	defer w.mu.Unlock()
	o.Notes = w.notes
	return nil
}

// settled waits until penstock's keeper holds the old flows, which it does once they are a second old.
func (w *testbed) settled(flows int) error {
	return proc.Until("the keeper to hold the old flows", patience, 20*time.Millisecond, func() error {
		n, err := peer.Settled(filepath.Join(w.dir, "admin"))
		if err == nil && n < int64(flows) {
			err = fmt.Errorf("it holds %d of %d", n, flows)
		}
		return err
	})
}

// mountProc makes /proc that of this process' namespace.
func mountProc() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	return nil
}

// begin sets everything up, and returns when the relay serves.
func (w *testbed) begin(o *outcome) (err error) {
	n := w.k.needs
	var keys []byte
	if w.r == penstock {
		if keys, err = exec.Command(w.Penstock, "schema").Output(); err != nil {
			return fmt.Errorf("penstock schema: %w", err)
		}
	}
	w.setup = setup{needs: n, dir: w.dir, penstock: w.Penstock, limit: 500 * time.Millisecond, connect: time.Second, log: filepath.Join(w.dir, "log"),
		has: func(key string) bool { return strings.Contains(string(keys), `"`+key+`"`) }}
	if w.Short { // the machine may be so busy that members answer late
		w.setup.limit, w.setup.connect = patience, patience
	}
	text, absent := w.r.config(&w.setup)
	if o.Absent = absent; absent != "" {
		return nil
	}
	if w.space, err = newSpace(); err != nil {
		return err
	}
	if w.link, err = wire(w.space, n); err != nil {
		return err
	}
	w.old = newOldFlows(w)
	for i := range members {
		m := &member{index: i, w: w}
		if n.Wild && i > 0 {
			break
		}
		if err := m.start(); err != nil {
			return err
		}
		w.members = append(w.members, m)
	}
	if err := w.syslog(); err != nil {
		return err
	}
	if n.DNS {
		if w.dns, err = newNameServer(worldIP); err != nil {
			return err
		}
	}
	l := launch{Argv: w.r.argv(&w.setup), Dir: w.dir, Files: n.Files, ReadOnly: n.ReadOnly, NoCaps: n.NoCaps}
	if l.Files == 0 {
		l.Files = 65536
	}
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) == nil {
		l.Files = min(l.Files, limit.Max)
	}
	if absent, err := w.place(&l); err != nil || absent != "" {
		o.Absent = absent
		return err
	}
	if err := os.WriteFile(filepath.Join(w.dir, w.r.file), []byte(text), 0o644); err != nil {
		return err
	}
	out, err := w.output()
	if err != nil {
		return err
	}
	if w.service, err = newService(w, l, out); err != nil {
		return err
	}
	if err := w.service.Begin(); err != nil {
		return err
	}
	return w.serves()
}

// place makes what a launch needs, as far as the fault asks for it.
func (w *testbed) place(l *launch) (absent string, err error) {
	n := w.k.needs
	if n.DNS {
		l.ResolvConf = filepath.Join(w.dir, "resolv.conf")
		if err := os.WriteFile(l.ResolvConf, []byte("nameserver "+worldIP+"\noptions timeout:1 attempts:2\n"), 0o644); err != nil {
			return "", err
		}
	}
	if n.Monotonic > 0 {
		var now unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
			return "", err
		}
		l.Monotonic = n.Monotonic - time.Duration(now.Nano())
	}
	if n.NoCaps && realRoot() {
		l.User = 65534
		if err := chownAll(w.dir, l.User); err != nil {
			return "", err
		}
	}
	if err := w.logs(); err != nil {
		return "", err
	}
	if n.Memory > 0 {
		if l.Cgroup, err = w.cgroup(n.Memory); err != nil {
			return "no cgroup with a limit of memory can be made here: " + err.Error(), nil
		}
	}
	return "", nil
}

// serves waits until a client is served.
func (w *testbed) serves() error {
	ask := func() error {
		c, err := net.DialTimeout("tcp", relayAddr(streamPort), time.Second)
		if err != nil {
			return err
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(2 * time.Second))
		return world.Ask(c, world.NextNumber(), 100)
	}
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		err := ask()
		if err == nil {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("the relay serves nobody after %v: %w", patience, err)
		}
		if n, how := w.service.deaths(); n > 3 {
			return fmt.Errorf("the relay does not start: %s", how)
		}
	}
}
