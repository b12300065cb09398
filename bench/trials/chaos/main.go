//go:build linux

// Chaos kills the process that carries the traffic, again and again, under a load that knows each of
// its bytes, and ends with a balance: what was lost, wrong or came twice.
//
//	go run ./bench/trials/chaos                             # the load alone, for 30 s
//	go run ./bench/trials/chaos -kills 1000                 # the worker is killed a thousand times
//	go run ./bench/trials/chaos -kills 1000 -copy           # and never splices
//	go run ./bench/trials/chaos -upgrades 200               # it is upgraded and downgraded instead
//	go run ./bench/trials/chaos -changes 1000               # the members of its groups, which are in a registry, change instead
//	go run ./bench/trials/chaos -soak 2h                    # everything together for long, at a modest load, and then: what is left over, and what grows
//	go run ./bench/trials/chaos -kills 1000 -seed 7         # with the same choices as another run
//
// An interrupt ends a run with its balance so far. Every byte of a flow is a function of the flow, the direction and the offset, so that a wrong one
// says whose it is.
package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/penstock/penstock/bench/internal/proc"
	"github.com/penstock/penstock/bench/internal/registry"
	"github.com/penstock/penstock/bench/internal/trial"
	"github.com/penstock/penstock/bench/internal/world"
)

const (
	mib = 1 << 20
	ms  = time.Millisecond

	startTimeout = 20 * time.Second // unless a flag says otherwise
)

// settings are those of one run.
type settings struct {
	binary       string
	kills        int
	upgrades     int
	soak         time.Duration
	rate         float64       // MiB per second of the load; 0: a soak's, or any
	growth       float64       // MiB per hour by which the RSS of a soak's processes may grow
	sampling     time.Duration // between two samples of a soak
	report       time.Duration // between two lines of a soak's progress
	changes      int
	source       string        // of the members that change
	between      time.Duration // two changes, on average
	restarts     int           // of the registry
	every        time.Duration // from when a worker relays to when it is killed, on average
	duration     time.Duration // of a run without kills
	flows        int           // of each shape at each listener
	clients      time.Duration // between two new clients
	keepAfter    time.Duration
	slack        time.Duration
	watchdog     time.Duration
	startTimeout time.Duration // 0: startTimeout
	idle         time.Duration // after which a datagram flow ends that carries nothing; 0: world.Idle
	keeper       bool
	loops        int
	copy         bool
	seed         uint64
	keep         bool // keep the files
	which        func(*world.Shape, *world.Place) bool

	format          string // of the ledgers, in a run with upgrades
	buildFlags      []string
	good, bad       []world.Program // to upgrade to
	begin, progress time.Time
	interrupt       chan os.Signal
}

func main() {
	actBad()
	var s settings
	flag.StringVar(&s.binary, "binary", "", "the daemon; default: it is built")
	flag.IntVar(&s.kills, "kills", 0, "how often the worker is killed")
	flag.IntVar(&s.upgrades, "upgrades", 0, "how often the daemon is upgraded, to another version and back, instead of killed")
	flag.IntVar(&s.changes, "changes", 0, "how often the members of groups change, in a registry, while nothing is killed but that")
	flag.StringVar(&s.source, "source", "etcd", "with -changes, the kind of `registry`: "+strings.Join(registry.Kinds(), ", "))
	flag.DurationVar(&s.between, "between", 100*ms, "time between two changes, on average")
	flag.IntVar(&s.restarts, "restarts", 10, "with -changes, how often the registry is killed and started again")
	flag.DurationVar(&s.soak, "soak", 0, "how long everything happens at a modest load, with long phases in which nothing is killed, so that a leak can be seen")
	flag.Float64Var(&s.rate, "rate", 0, "the load in `MiB` per second, of which a write costs 8 KiB besides its bytes; 0: 16 with -soak, or as much as there can be")
	flag.Float64Var(&s.growth, "growth", 4, "with -soak, by how many `MiB` per hour the memory of a process may grow; more, with 95% confidence, is a fault")
	flag.DurationVar(&s.report, "report", time.Minute, "with -soak, time between two lines of progress")
	flag.StringVar(&s.format, "format", "longer", "with -upgrades, what is different in the ledgers of the first version: longer or required, which today's version must refuse")
	flag.DurationVar(&s.every, "every", 700*ms, "time from when a worker relays to when it is killed, on average")
	flag.DurationVar(&s.duration, "duration", 30*time.Second, "how long a run without kills takes")
	flag.IntVar(&s.flows, "flows", 1, "stream flows of each shape at each listener, and datagram clients of each kind")
	flag.DurationVar(&s.clients, "clients", 5*ms, "time between two new clients")
	flag.DurationVar(&s.keepAfter, "keep-after", 200*ms, "the configuration's keep-after")
	flag.DurationVar(&s.slack, "slack", time.Second, "how much older a flow must be to count as settled")
	flag.DurationVar(&s.startTimeout, "start-timeout", startTimeout, "the configuration's start-timeout")
	flag.DurationVar(&s.watchdog, "watchdog", 2*time.Second, "the configuration's watchdog")
	flag.BoolVar(&s.keeper, "keeper", false, "run the daemon with a keeper even if nothing is killed")
	flag.IntVar(&s.loops, "loops", 2, "event loops")
	flag.BoolVar(&s.copy, "copy", false, "nothing is spliced, so that more bytes are in the worker's own memory")
	flag.Uint64Var(&s.seed, "seed", rand.Uint64()>>1, "seed of everything random")
	flag.BoolVar(&s.keep, "keep-files", false, "keep the folder with log, records and configuration")
	flag.DurationVar(&world.Patience, "patience", world.Patience, "how long a flow may stand still")
	flag.Parse()
	s.interrupt = make(chan os.Signal, 1)
	signal.Notify(s.interrupt, os.Interrupt)
	good, err := s.run(os.Stdout)
	proc.EndAll()
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
	if !good {
		os.Exit(1)
	}
}

// run runs the load, and reports whether the balance is good.
func (s *settings) run(out io.Writer) (good bool, err error) {
	fmt.Fprintf(out, "seed %d\n", s.seed)
	if _, err := proc.RaiseFiles(100_000); err != nil {
		return false, err
	}
	dir, err := os.MkdirTemp("", "penstock-chaos-")
	if err != nil {
		return false, err
	}
	defer func() {
		if s.keep || !good {
			fmt.Fprintln(out, "files:", dir)
		} else {
			os.RemoveAll(dir)
		}
	}()
	if s.binary == "" {
		s.binary = filepath.Join(dir, "penstock")
		make := func() error { return trial.Build(s.binary, s.buildFlags...) }
		if s.upgrades > 0 {
			make = func() error { return s.buildFormat(s.binary, "v98.0.0") }
		}
		if err := make(); err != nil {
			return false, err
		}
	}
	if s.upgrades > 0 {
		if s.good, s.bad, err = s.binaries(dir); err != nil {
			return false, err
		}
		s.watchdog = max(s.watchdog, 10*time.Second) // nothing is to hang
	}
	// The daemon writes in a folder of its own: it may not be replaced by a binary that it could have written.
	sockets, run := filepath.Join(dir, "clients"), filepath.Join(dir, "run")
	if err := errors.Join(os.Mkdir(sockets, 0o755), os.Mkdir(run, 0o755)); err != nil {
		return false, err
	}
	r := rand.New(rand.NewPCG(s.seed, 1))
	// An address of 127.0.0.0/8 that nobody else has; the choice depends on the process, not on the seed.
	host := fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(250), rand.IntN(250), 1+rand.IntN(250))
	o := options{dir: run, host: host, loops: s.loops, copy: s.copy, idle: cmp.Or(s.idle, world.Idle)}
	if s.kills > 0 || s.upgrades > 0 || s.soak > 0 || s.keeper {
		o.keeper = s.keeperConfig()
	}
	w := world.New(s.seed, out, sockets)
	w.Rate = s.rate * mib
	w.KeepAfter, w.Slack, w.Idle = s.keepAfter, s.slack, o.idle
	defer w.CloseUpstreams()
	var config string
	var c *churn
	var k *soak
	if s.soak > 0 {
		if k, err = s.newSoak(w, o); err != nil {
			return false, err
		}
		w.Places, config = k.places()
		if err := errors.Join(o.listen(w), k.listen()); err != nil {
			return false, err
		}
	} else if s.changes > 0 {
		reg, err := s.newRegistry(dir)
		if err != nil {
			return false, err
		}
		defer reg.Close()
		if c, err = newChurn(w, reg, host); err != nil {
			return false, err
		}
		w.Places, config = o.churnPlaces(reg)
	} else {
		w.Places, config = o.places()
		if err := o.listen(w); err != nil {
			return false, err
		}
	}
	d, err := world.Start(s.binary, o.dir, config, o.keeper != "")
	if err != nil {
		return false, err
	}
	defer func() {
		d.Kill()
	}()
	if c != nil {
		if err := c.start(d); err != nil {
			return false, fmt.Errorf("%w\n%s", err, d.LogTail(10))
		}
	}
	if k != nil {
		if err := k.begin(d); err != nil {
			return false, fmt.Errorf("%w\n%s", err, d.LogTail(10))
		}
	}
	scraper := world.Watch(w, d, c != nil)
	w.Load(s.flows, s.which)
	w.LoadDatagrams(s.flows)
	w.NewClients(s.clients)
	if err := s.chaos(w, d, c, k, r); err != nil {
		w.Tally.Fault(world.OtherFaults, "%v\nlast lines of the log:\n%s", err, d.LogTail(10))
	}
	if err := w.Finish(); err != nil {
		w.Tally.Fault(world.FlowsLost, "%v", err)
	}
	if err := scraper.Balance(); err != nil {
		w.Tally.Fault(world.OtherFaults, "metrics: %v", err)
	}
	if k != nil {
		k.end()
	}
	code, err := d.Terminate()
	if err != nil || code != 0 && code != world.DrainedLate {
		w.Tally.Fault(world.OtherFaults, "the daemon ended with code %d: %v", code, err)
	}
	if err := w.CheckRecords(run); err != nil {
		return false, err
	}
	if c != nil {
		c.print(out)
	} else {
		s.printKills(w, d, scraper)
	}
	w.Tally.Print()
	good = w.Tally.Good()
	fmt.Fprintf(out, "\n%s, seed %d\n", map[bool]string{true: "all is well", false: "FAULTS"}[good], s.seed)
	return good, nil
}

// newRegistry starts the registry that has the members.
func (s *settings) newRegistry(dir string) (registry.Registry, error) {
	data := filepath.Join(dir, "registry")
	if err := os.Mkdir(data, 0o700); err != nil {
		return nil, err
	}
	return registry.New(s.source, data)
}

// keeperConfig returns the value of the key keeper.
func (s *settings) keeperConfig() string {
	return fmt.Sprintf("{keep-after: %v, watchdog: %v, max-restart-delay: 100ms, start-timeout: %v, healthy-after: 500ms}", s.keepAfter, s.watchdog, cmp.Or(s.startTimeout, startTimeout))
}

// deaths are the ways in which a worker dies, the more frequent ones several times.
var deaths = []syscall.Signal{
	syscall.SIGKILL, syscall.SIGKILL, syscall.SIGKILL, syscall.SIGKILL, syscall.SIGKILL, syscall.SIGKILL, syscall.SIGKILL,
	syscall.SIGKILL, syscall.SIGKILL, syscall.SIGKILL, syscall.SIGKILL, syscall.SIGKILL, syscall.SIGKILL, syscall.SIGKILL,
	syscall.SIGSEGV, syscall.SIGSEGV, syscall.SIGABRT, syscall.SIGABRT, syscall.SIGSTOP,
}

// chaos does to the daemon what was asked for, or nothing for some time.
func (s *settings) chaos(w *world.World, d *world.Daemon, c *churn, k *soak, r *rand.Rand) error {
	s.begin, s.progress = time.Now(), time.Now()
	switch {
	case k != nil:
		return k.run(r)
	case c != nil:
		return s.churnAll(c, r)
	case s.upgrades > 0:
		return s.upgradeAll(w, d, r)
	case s.kills > 0:
		return s.killAll(w, d, r)
	}
	for time.Since(s.begin) < s.duration && !d.Over() && !s.interrupted() {
		time.Sleep(100 * ms)
		s.show(w, 0)
	}
	return d.Failed()
}

// interrupted reports whether the run is to end now, with a balance of what was.
func (s *settings) interrupted() bool {
	select {
	case <-s.interrupt:
		return true
	default:
		return false
	}
}

// show shows the progress every ten seconds.
func (s *settings) show(w *world.World, done int) {
	if time.Since(s.progress) >= 10*time.Second {
		s.progress = time.Now()
		fmt.Fprintf(w.Tally.Out, "%6v  %d done, %d flows open, %d made, %d outlived a kill, %.1f GB, faults: %v\n", time.Since(s.begin).Round(time.Second), done, w.Open.Load(),
			w.Tally.Get(world.FlowsMade), w.Tally.Get(world.FlowsKept), float64(w.Tally.Get(world.BytesMoved))/1e9, !w.Tally.Good())
	}
}

// killAll kills the worker as often as asked.
func (s *settings) killAll(w *world.World, d *world.Daemon, r *rand.Rand) error {
	time.Sleep(s.keepAfter + s.slack)
	for i := range s.kills {
		if s.interrupted() {
			break
		}
		pause := time.Duration(r.Int64N(int64(2*s.every) + 1))
		if r.IntN(8) == 0 {
			pause /= 8 // while the next worker starts
		} else if err := d.Ready(world.Patience); err != nil {
			return errors.Join(d.Failed(), err)
		}
		time.Sleep(pause)
		if err := s.killOne(w, d, deaths[r.IntN(len(deaths))]); err != nil {
			return errors.Join(d.Failed(), err)
		}
		s.show(w, i+1)
	}
	time.Sleep(2 * time.Second)
	return d.Failed()
}

// killOne kills the worker once there is one.
func (s *settings) killOne(w *world.World, d *world.Daemon, sig syscall.Signal) (err error) {
	for end := time.Now().Add(world.Patience); time.Now().Before(end); time.Sleep(ms) {
		if err = d.KillWorker(w, sig); err == nil {
			return nil
		}
		if d.Over() {
			return err
		}
	}
	return err
}

// printKills tells how often the worker died, and in what way.
func (s *settings) printKills(w *world.World, d *world.Daemon, t *world.Watcher) {
	how := make(map[string]int)
	for _, k := range w.Kills.All {
		how[k.How]++
	}
	fmt.Fprintf(w.Tally.Out, "\n%d kills:", len(w.Kills.All))
	for _, sig := range []string{"killed", "segmentation fault", "aborted", "stopped (signal)", "upgrade"} {
		if how[sig] > 0 {
			fmt.Fprintf(w.Tally.Out, " %s %d", sig, how[sig])
		}
	}
	fmt.Fprintf(w.Tally.Out, "\n%d scrapes, %d while there was no worker\n", t.Scrapes, t.Failed)
	// What the workers found that were started after another one.
	starts, holding := 0, 0
	sums := make(map[string]float64)
	for _, line := range d.Log() {
		if _, ok := line.Attrs["held_bytes"]; !ok {
			continue
		}
		starts++
		for name, v := range line.Attrs {
			if n, ok := v.(float64); ok {
				sums[name] += n
			}
		}
		if n, _ := line.Attrs["holding"].(float64); n > 0 {
			holding++
		}
	}
	if starts == 0 {
		return
	}
	fmt.Fprintf(w.Tally.Out, "%d workers started after another one, and %d of them found bytes in its hands: %.0f bytes of %.0f flows; %.0f times a flow was restored\n",
		starts, holding, sums["held_bytes"], sums["holding"], sums["flows"])
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		if reason, ok := strings.CutPrefix(name, "lost_"); ok {
			fmt.Fprintf(w.Tally.Out, "%15.0f  flows were not restored: %s\n", sums[name], reason)
		}
	}
}
