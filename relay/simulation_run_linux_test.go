package relay

import (
	"flag"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/simkernel"
	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testnet"
)

var (
	simulateFor    = flag.Duration("simulate", 0, "how long TestSimulate runs schedules of random seeds; 0: a fixed number of them")
	simulateSeed   = flag.Uint64("simulate.seed", 0, "run the schedule of this seed only")
	simulateText   = flag.String("simulate.schedule", "", "run this schedule only, as a failure has printed it")
	simulateSecure = flag.Bool("simulate.secure", false, "streams have TLS in each schedule")
	// A mutant may make each run of a schedule long.
	simulateShrink = flag.Bool("simulate.shrink", true, "look for the fewest steps that still fail")
)

// simStep is one step of a schedule. What its numbers mean depends on what there is at that time, so that a schedule without some of
// its steps is one, too.
type simStep struct {
	kind simKind
	a, b int
}

type simKind uint8

const (
	simTurn simKind = iota
	simConnect
	simAccept
	simSend
	simRead
	simEnd
	simClose
	simReset
	simDeliver
	simSleep
	simDie
	simDieTwice
	simKill
	simUpgrade
	simFault
	simHeal
	simHolderFails
	simSettle
	simAnswer
	simResume
	simDrainBegins
	simDrainEnds
	simBulk
	simUrgent
	simPour
	simDamage
	simSteer
	simTrim
	simShed
	simUpdate
	simCompute
	simCut
	simKeeperActs
	simStandbyDies
	simKinds
)

var simNames = [simKinds]string{"turn", "connect", "accept", "send", "read", "end", "close", "reset", "deliver", "sleep", "die", "dieTwice", "kill", "upgrade", "fault", "heal", "holderFails", "settle", "answer", "resume", "drain", "drainEnds", "bulk", "urgent", "pour", "damage", "steer", "trim", "shed", "update", "compute", "cut", "keeper", "standbyDies"}

// simWeights say how often a step is drawn.
var simWeights = [simKinds]int{
	simTurn: 30, simConnect: 5, simAccept: 8, simSend: 18, simRead: 14, simEnd: 3, simClose: 1, simReset: 1, simDeliver: 12, simSleep: 4,
	simDie: 6, simDieTwice: 1, simKill: 1, simUpgrade: 1, simFault: 4, simHeal: 4, simHolderFails: 1, simSettle: 1, simAnswer: 6, simResume: 3, simDrainBegins: 2, simDrainEnds: 2, simBulk: 8, simUrgent: 3, simPour: 2, simDamage: 1,
	simSteer: 4, simTrim: 1, simShed: 3, simUpdate: 2, simCompute: 12, simCut: 10, simKeeperActs: 6, simStandbyDies: 1,
}

func (x simStep) String() string { return fmt.Sprintf("{%s %d %d}", simNames[x.kind], x.a, x.b) }

// simSchedule is what a seed stands for.
type simSchedule struct {
	simSettings
	steps []simStep
}

func drawSchedule(seed uint64) simSchedule { return drawScheduleOf(seed, *simulateSecure) }

// drawScheduleOf draws one in which streams have TLS, or in which they may.
func drawScheduleOf(seed uint64, secure bool) simSchedule {
	r := rand.New(rand.NewPCG(seed, 1))
	x := simSchedule{simSettings: simSettings{slow: r.IntN(2) == 0, after: r.IntN(3), slowConnects: r.IntN(3) == 0, backlog: [...]int{0, 0, 0, 1, 2}[r.IntN(5)], limits: r.IntN(4) == 0, close: r.IntN(8) == 0,
		loops: [...]int{0, 0, 2, 3}[r.IntN(4)], changes: r.IntN(4) == 0}}
	sum := 0
	for _, w := range simWeights {
		sum += w
	}
	for range 1 + r.IntN(6) {
		x.steps = append(x.steps, simStep{simConnect, r.IntN(1 << 10), r.IntN(1 << 10)})
	}
	drains := r.IntN(5) == 0
	damages := r.IntN(6) == 0
	overload := r.IntN(4) == 0
	if r.IntN(6) == 0 || secure {
		x.secure, x.handshakes = 1+r.IntN(1<<10), [...]int{0, 0, 1, 2}[r.IntN(4)]
	}
	for range 20 + r.IntN(100) {
		n, kind := r.IntN(sum), simKind(0)
		for ; n >= simWeights[kind]; kind++ {
			n -= simWeights[kind]
		}
		if (kind == simDrainBegins || kind == simDrainEnds) && !drains {
			kind = simTurn
		}
		if kind == simDamage && !damages || kind >= simSteer && kind <= simShed && !overload || (kind == simCompute || kind == simCut) && x.secure == 0 {
			kind = simTurn
		}
		x.steps = append(x.steps, simStep{kind, r.IntN(1 << 10), r.IntN(1 << 10)})
	}
	if r.IntN(4) == 0 {
		x.idle = simIdle
	}
	if r.IntN(3) == 0 {
		x.busy = 1 + r.IntN(1<<10)
	}
	if r.IntN(4) == 0 {
		x.rates = 1 + r.IntN(1<<10)
	}
	if r.IntN(8) == 0 {
		x.files = 26 + r.IntN(24)
	}
	x.early = r.IntN(2) == 0
	if r.IntN(6) == 0 {
		x.builtins = 1 + r.IntN(1<<10)
	}
	if r.IntN(6) == 0 {
		x.updates = 1 + r.IntN(1<<10)
	}
	if r.IntN(4) == 0 {
		x.pipes = 1 + r.IntN(2)
	}
	x.slowConnects = x.slowConnects || x.limits
	if real := r.IntN(2) * (1 + r.IntN(1<<14)); simKeepers {
		x.real = real
	}
	if r.IntN(5) == 0 {
		x.words = 1 + r.IntN(1<<10)
	}
	if x.linger = x.secure > 0 && r.IntN(2) == 0; x.linger {
		for i := range x.steps {
			if x.steps[i].kind == simTurn {
				x.steps[i].kind = [...]simKind{simUpgrade, simUpgrade, simStandbyDies, simTurn}[min(r.IntN(40), 3)]
			}
		}
	}
	x.kernelTLS = x.secure > 0 && !x.linger && r.IntN(2) == 0
	if n := r.IntN(16); n < 2 {
		x.pipes = [...]int{simDefaultPipes, simNoPipes}[n]
	}
	return x
}

// simSizes are what a number of bytes is drawn from.
var simSizes = [...]int{1, 10, 100, 1000, 3000, 4096, 8000, 17_000, 18_500, 30_000, 65_536, 70_000, 150_000, 300_000}

// do does a step.
func (s *simulation) do(x simStep) {
	if s.does(x) {
		s.seen.steps[x.kind]++
	}
}

// does reports whether there was something to do.
func (s *simulation) does(x simStep) bool {
	var f *simFlow
	side := x.b & 1
	if len(s.flows) > 0 {
		f = s.flows[x.a%len(s.flows)]
	}
	size := simSizes[x.b>>1%len(simSizes)]
	switch x.kind {
	case simTurn:
		for range 1 + x.a%3 {
			s.turnLoop(x.b)
		}
		if x.b>>4%4 > 0 {
			s.computeAll()
		}
	case simConnect:
		return s.connect(x.a, x.b)
	case simAccept:
		return s.accept()
	case simSend:
		return f != nil && s.send(f, side, size)
	case simRead:
		return f != nil && s.read(f, side, size)
	case simEnd:
		return f != nil && s.end(f, side)
	case simClose, simReset:
		return f != nil && s.close(f, side, x.kind == simReset)
	case simDeliver:
		n := s.world.InFlight()
		if n > 0 {
			s.world.Deliver(x.a%n, size)
		}
		return n > 0
	case simSleep:
		if until := s.process.WaitsUntil() - s.world.Elapsed(); x.b%4 == 0 && until > 0 {
			s.world.Sleep(until) // to the next timer
		} else if x.b%8 == 1 {
			s.world.Sleep(time.Duration(1+3*x.a) * time.Millisecond)
		} else {
			s.world.Sleep(time.Duration(1+x.a%200) * time.Millisecond)
		}
	case simAnswer:
		return s.answer(x.a, x.b)
	case simResume:
		return f != nil && s.resume(f)
	case simDieTwice:
		s.diesNext = 1 + x.b%12
		fallthrough
	case simDie:
		s.process.DieAfter(1 + x.a%40)
	case simKill:
		s.kill()
	case simUpgrade:
		return s.keeper.upgrade(x.a, s)
	case simFault:
		s.fault(x.a, x.b)
	case simHeal:
		s.failCalls(nil)
		s.faults = nil
	case simHolderFails:
		s.keeper.fails = 1 + x.a%3
	case simSettle:
		s.settle(false)
		s.quiet()
	case simDrainBegins:
		return s.beginDrain()
	case simDrainEnds:
		return s.endDrain()
	case simBulk:
		return f != nil && s.bulk(f, side, 1+x.b>>5%5)
	case simUrgent:
		return f != nil && s.sendUrgent(f, side)
	case simDamage:
		return s.damage(x.a)
	case simSteer:
		return s.steer(x.a, x.b, s.call)
	case simUpdate:
		return s.update(x.a)
	case simKeeperActs:
		return s.keeper.real != nil && s.keeper.real.acts(x.a)
	case simStandbyDies:
		return s.someLingererDies(x.a) || s.keeper.real != nil && s.keeper.real.standbyDies(x.a)
	case simTrim:
		s.trims(s.call)
	case simShed:
		return s.sheds(x.a, x.b, s.turn, s.call)
	case simCompute:
		return s.compute(x.a)
	case simCut:
		return s.cutOne(x.a, x.b)
	case simPour:
		return f != nil && s.pour(f, side, 15+x.b>>5)
	}
	return true
}

// simScarce are the errors of a kernel that has no more.
var simScarce = [...]sys.Errno{sys.EMFILE, sys.ENFILE, sys.ENOMEM, sys.ENOBUFS}

// simFaultKinds are the kinds that a fault's number stands for: the first ones by its last digit, and the others by its higher bits.
const (
	simPipeFaults  = 3
	simTwiceFaults = 4  // accept and socket
	simWatchFaults = 6  // epoll_ctl
	simMoveFaults  = 7  // all of the data path
	simPlainFaults = 10 // as many
	simLaterFaults = 12 // accept, and then there is somebody
	simFaultKinds  = 14
	simSendFaults  = 14 // send: there is no room, and then no memory for what has waited
)

func simFaultKind(n int) int {
	if n>>6%3 == 1 {
		return simPlainFaults + n%(simFaultKinds-simPlainFaults)
	}
	if n>>6%3 == 2 && n%simPlainFaults == simMoveFaults {
		return simSendFaults
	}
	return n % simPlainFaults
}

// simFaults are calls that fail, or move less than they could. What a flow ends with because of it nobody else has done.
func simFaults(number, every int) func(simkernel.Call, int) (int, sys.Errno) {
	r := rand.New(rand.NewPCG(uint64(number), uint64(every))) // a regular one could meet each retry of a call
	every = 2 + every%5
	kind, scarce := simFaultKind(number), simScarce[number>>4%len(simScarce)]
	return func(c simkernel.Call, most int) (int, sys.Errno) {
		if r.IntN(every) > 0 {
			return most, 0
		}
		moves := most > 0 && c != "epoll-wait"
		whole := c == "recv" || c == "recv-one" // TCP gives less than it has only in front of urgent data: pump.Half.Exact
		switch kind {
		case 0:
			if moves {
				return 0, sys.EINTR
			}
		case 1:
			if moves && !whole {
				return 1, 0
			}
		case 2:
			if moves && !whole {
				return (most + 1) / 2, 0
			}
		case simPipeFaults:
			if c == "pipe" {
				return 0, scarce
			}
		case simTwiceFaults:
			if c == "accept" || c == "socket" {
				return 0, scarce
			}
		case 5:
			if c == "epoll-wait" {
				return 0, sys.EINTR
			}
		case simWatchFaults:
			if c == "epoll-add" {
				return 0, sys.ENOMEM
			}
		case simMoveFaults: // and what it needs
			if moves && r.IntN(4) == 0 || c == "socket" || c == "accept" {
				return 0, sys.ENOMEM
			}
		case 8:
			if c == "accept" {
				return 0, [...]sys.Errno{sys.EINTR, sys.ECONNABORTED}[r.IntN(2)]
			}
		case 9:
			if moves && !whole {
				return 1 + r.IntN(most), 0
			}
		case 10, 11:
			if moves && c != "read-pipe" { // a pipe that has something gives it
				return 0, sys.EAGAIN
			}
		case simLaterFaults:
			if c == "accept" {
				return 0, sys.EAGAIN
			}
		case 13: // a socket that is not spliced, and the pipe that is read then
			switch {
			case c == "splice":
				return 0, sys.EINVAL
			case c == "read-pipe" && r.IntN(2) == 0:
				return 0, sys.EINTR
			case c == "read-pipe":
				return 1 + r.IntN(most), 0
			}
		case simSendFaults:
			if c == "send" && most > 0 {
				return 0, [...]sys.Errno{sys.EAGAIN, sys.EAGAIN, sys.ENOMEM}[r.IntN(3)]
			}
		}
		return most, 0
	}
}

// simFaultsWanted are the calls that must have failed in many schedules, and how: each time, one of those.
func simFaultsWanted() (all [][]string) {
	add := func(e sys.Errno, calls ...simkernel.Call) {
		for _, c := range calls {
			all = append(all, []string{faultName(c, e)})
		}
	}
	all = append(all, []string{faultName("read-pipe", 0), faultName("read-pipe", sys.EINTR)})
	add(0, "send", "send-one", "splice")
	add(sys.EINTR, "recv", "recv-one", "send", "send-one", "splice", "accept", "epoll-wait")
	add(sys.EAGAIN, "recv", "recv-one", "send", "send-one", "splice", "accept")
	add(sys.ENOMEM, "recv", "send", "splice", "epoll-add")
	add(sys.ECONNABORTED, "accept")
	add(sys.EINVAL, "splice")
	for _, c := range []simkernel.Call{"accept", "socket", "pipe"} {
		var some []string
		for _, e := range simScarce {
			some = append(some, faultName(c, e))
		}
		all = append(all, some)
	}
	return all
}

// run runs a schedule. An error says what was wrong, and after how many steps.
func (x *simSchedule) run() (at int, s *simulation) {
	s = newSimulation(x.simSettings)
	defer s.finish()
	for i, step := range x.steps {
		s.traceStep(i, step, s.describe)
		s.do(step)
		if s.keeper.real != nil {
			s.keeper.real.idle()
		}
		s.look()
		if s.wrong != nil {
			return i, s
		}
	}
	s.calm()
	if x.close {
		s.failCalls(nil)
		s.faults = nil
		s.closeEngine()
		return len(x.steps), s
	}
	s.settle(false)
	s.quiet()
	for _, f := range s.flows { // what waits for its source is told of more
		s.send(f, sideClient, 1)
		s.send(f, sideUpstream, 1)
	}
	s.settle(false)
	s.quiet()
	if x.idle > 0 {
		s.timeOut()
	}
	s.settle(true)
	s.check()
	return len(x.steps), s
}

// shrink removes what a failing schedule does not need to fail.
func (x *simSchedule) shrink() {
	fails := func(steps []simStep) bool {
		y := simSchedule{x.simSettings, steps}
		_, s := y.run()
		return s.wrong != nil
	}
	for n := len(x.steps) / 2; n > 0; n /= 2 {
		for at := 0; at < len(x.steps); {
			if less := slices.Delete(slices.Clone(x.steps), at, min(at+n, len(x.steps))); fails(less) {
				x.steps = less
			} else {
				at += n
			}
		}
	}
}

func (x simSchedule) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "slow %v, after %d, idle %v", x.slow, x.after, x.idle)
	for _, o := range x.options() {
		if n := o.get(); n != 0 {
			fmt.Fprintf(&b, ", %s %d", o.name, n)
		}
	}
	b.WriteString(":")
	for _, step := range x.steps {
		b.WriteString(" " + step.String())
	}
	return b.String()
}

// simOption is a setting that is rarely other than 0.
type simOption struct {
	name string
	get  func() int
	set  func(n int)
}

func flagOption(name string, v *bool) simOption {
	return simOption{name, func() int { return map[bool]int{true: 1}[*v] }, func(n int) { *v = n != 0 }}
}

func numberOption[T ~int | ~int64 | ~uint8](name string, v *T) simOption {
	return simOption{name, func() int { return int(*v) }, func(n int) { *v = T(n) }}
}

func (x *simSettings) options() []simOption {
	return []simOption{flagOption("slowConnects", &x.slowConnects), numberOption("backlog", &x.backlog), numberOption("files", &x.files), numberOption("pipes", &x.pipes), numberOption("builtins", &x.builtins), numberOption("words", &x.words), numberOption("updates", &x.updates), numberOption("loops", &x.loops), flagOption("changes", &x.changes), flagOption("limits", &x.limits), flagOption("early", &x.early),
		flagOption("close", &x.close), numberOption("busy", &x.busy), numberOption("rates", &x.rates), numberOption("secure", &x.secure), numberOption("handshakes", &x.handshakes), flagOption("linger", &x.linger), flagOption("kernelTLS", &x.kernelTLS), numberOption("keeper", &x.real)}
}

// report tells of a schedule that has failed.
func (x *simSchedule) report(seed uint64, at int, s *simulation) string {
	x.steps = x.steps[:min(at+1, len(x.steps))]
	first := s.wrong
	if *simulateShrink {
		x.shrink()
		_, s = x.run()
	}
	return fmt.Sprintf("seed %d, step %d: %v\nwith the fewest steps: %v\n%v", seed, at, first, s.wrong, x)
}

// TestSimulate runs schedules of random seeds in a simulated kernel. To repeat one, give it -simulate.seed.
func TestSimulate(t *testing.T) {
	if *simulateText != "" {
		x, err := parseSchedule(*simulateText)
		if err != nil {
			t.Fatal(err)
		}
		at, s := x.run()
		t.Logf("step %d: %v\n%s", at, s.wrong, s.describe())
		if s.wrong != nil {
			t.Fail()
		}
		return
	}
	if *simulateSeed != 0 {
		x := drawSchedule(*simulateSeed)
		if at, s := x.run(); s.wrong != nil {
			t.Error(x.report(*simulateSeed, at, s))
		}
		return
	}
	if *simulateFor == 0 {
		n := simSeedsEnough
		if testnet.RaceEnabled { // each schedule is one goroutine
			n = 100
		}
		simulateSeeds(t, simSeedsFirst, n)
		return
	}
	first := rand.Uint64()
	t.Logf("seeds from %d on, for %v on %d CPUs", first, *simulateFor, runtime.GOMAXPROCS(0))
	simulateSeeds(t, first, math.MaxInt)
}

// simulateSeeds runs n schedules, or as many as there is time for, on all CPUs.
func simulateSeeds(t *testing.T, first uint64, n int) {
	var done, flows, deaths, upgrades, spliced, restored atomic.Int64
	var failed atomic.Bool
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // each schedule makes engines, and leaves them
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(simMemory))
	var seenLock sync.Mutex
	var seen simSeen
	seen.init()
	began := time.Now()
	say := func() string {
		d := time.Since(began).Seconds()
		seenLock.Lock()
		defer seenLock.Unlock()
		return fmt.Sprintf("%d schedules, %.0f/s; %d flows, %.0f/s and CPU; %d deaths, %d upgrades; %v", done.Load(), float64(done.Load())/d, flows.Load(),
			float64(flows.Load())/d/float64(runtime.GOMAXPROCS(0)), deaths.Load(), upgrades.Load(), &seen)
	}
	var all sync.WaitGroup
	var next atomic.Int64
	for worker := range runtime.GOMAXPROCS(0) {
		all.Go(func() {
			told := time.Now()
			for !failed.Load() && (*simulateFor == 0 || time.Since(began) < *simulateFor) {
				i := next.Add(1) - 1
				if i >= int64(n) {
					return
				}
				seed := first + uint64(i)
				x := drawSchedule(seed)
				if at, s := x.run(); s.wrong != nil {
					failed.Store(true)
					t.Error(x.report(seed, at, s))
					return
				} else {
					seenLock.Lock()
					seen.add(&s.seen)
					seenLock.Unlock()
					done.Add(1)
					flows.Add(int64(len(s.flows)))
					deaths.Add(int64(s.deaths))
					upgrades.Add(int64(s.upgrades))
					spliced.Add(s.spliced)
					restored.Add(s.restored)
				}
				if worker == 0 && time.Since(told) > 10*time.Second {
					told = time.Now()
					fmt.Println(say())
				}
			}
		})
	}
	all.Wait()
	t.Log(say())
	if spliced.Load() == 0 || restored.Load() == 0 || upgrades.Load() == 0 {
		t.Errorf("%d bytes were spliced, and %d flows restored: the schedules do not say much", spliced.Load(), restored.Load())
	}
	t.Log(seen.counts())
	if n >= simSeedsEnough && !failed.Load() {
		for _, what := range seen.missing() {
			t.Errorf("%s: it has not happened", what)
		}
	}
}

// TestSimulateAgain runs schedules twice: one seed is one run, call by call.
func TestSimulateAgain(t *testing.T) {
	for seed := uint64(1); seed <= 40; seed++ {
		var texts [2]string
		for i := range texts {
			x := drawScheduleOf(seed, seed%2 == 0)
			trace := fnv.New64a()
			x.trace = func(c simkernel.Call, n int) { fmt.Fprintln(trace, c, n) }
			_, s := x.run()
			texts[i] = fmt.Sprintln(trace.Sum64()) + fmt.Sprintln(s.wrong, s.deaths, s.upgrades, s.delivered, s.world.Elapsed(), s.process.Calls(), s.peers.Calls(), s.describe())
		}
		if texts[0] != texts[1] {
			t.Fatalf("seed %d:\n%s\nand again:\n%s", seed, texts[0], texts[1])
		}
	}
}

// schedulesThatFound are those of seeds that found something, with the fewest steps, and what that was.
var schedulesThatFound = map[string]string{
	"slow false, after 0, idle 0s, backlog 1, files 28, pipes -2, loops 2, changes 1, keeper 8787: {connect 803 789} {connect 302 165} {connect 355 631} {connect 24 128} {connect 829 399} {connect 277 145} {connect 831 576} {connect 247 812} {turn 163 689} {turn 417 558} {drain 812 342} {settle 860 215} {die 201 724} {turn 848 375}":                                                                                                                                                                                                                                                                                                                                                                                                                                     "the oracle's: a process had closed its listeners and died, and the next one had too few descriptors for others",
	"slow false, after 2, idle 0s, words 449, rates 153, secure 469, handshakes 2, linger 1, keeper 9031: {connect 62 27} {connect 671 238} {connect 448 413} {connect 935 126} {connect 276 337} {connect 303 681} {turn 38 345} {upgrade 988 684} {send 282 885} {read 848 702} {heal 471 1} {read 143 900} {turn 511 605} {turn 966 689} {fault 7 833} {deliver 865 243} {turn 783 808} {keeper 429 172}":                                                                                                                                                                                                                                                                                                                                                                       "the oracle's: an upstream's answer could not be read for want of memory, and its connection was given up while its handshake began",
	"slow false, after 2, idle 4s, backlog 2, changes 1, early 1, busy 52, secure 87, handshakes 2, linger 1: {connect 844 216} {connect 121 747} {connect 950 557} {bulk 541 447} {turn 82 733} {connect 174 174} {fault 376 248} {turn 108 539} {upgrade 218 955} {connect 81 588} {kill 172 271}":                                                                                                                                                                                                                                                                                                                                                                                                                                                                               "the oracle's: a connection failed for want of memory when the process that lingers took it, which was looked at only after its first turn, and the process with the flow was killed before",
	"slow true, after 2, idle 0s, slowConnects 1, builtins 675, changes 1, limits 1, early 1, secure 122, kernelTLS 1, keeper 15473: {connect 96 716} {settle 460 216} {connect 978 972} {turn 652 953} {connect 691 7} {connect 244 621} {cut 198 210} {die 217 585} {bulk 296 796}":                                                                                                                                                                                                                                                                                                                                                                                                                                                                                              "a client whose TLS the kernel has, and whose upstream discards, had sent what is no record, and the process died in the read that was told: the next one waited for the rest of it",
	"slow false, after 0, idle 0s, pipes 2, builtins 776, updates 191, busy 95, keeper 5391: {connect 641 566} {connect 183 736} {turn 251 69} {keeper 363 85} {sleep 679 838} {kill 103 276} {fault 403 802} {answer 49 481} {read 525 176} {accept 569 610} {end 827 295} {update 829 82} {turn 361 525} {turn 14 327} {read 909 318} {fault 117 493} {heal 595 817} {accept 559 550} {fault 462 1007} {turn 685 25} {read 150 667} {send 187 469} {answer 771 354} {die 14 27} {damage 874 489} {connect 503 505} {bulk 737 355} {sleep 141 610} {bulk 14 673} {die 129 812} {turn 110 876} {die 185 862} {turn 251 200} {turn 965 593} {connect 734 145} {turn 761 450}":                                                                                                       "a ledger could not be read, and the flows of the new one had the generations of those that are held: the process died before its keeper had heard that they are dropped, and the next one took the sockets of such a flow for those of a new one",
	"slow true, after 0, idle 0s, slowConnects 1, backlog 1, files 34, loops 3, limits 1, busy 452, keeper 12998: {connect 366 533} {connect 767 564} {connect 802 795} {settle 15 523} {connect 376 74} {turn 985 69} {bulk 85 723} {keeper 399 978} {turn 752 737} {bulk 439 845} {turn 474 193} {connect 419 605} {turn 473 353} {turn 374 605} {turn 233 470} {send 947 251} {sleep 737 888} {bulk 921 1021} {read 127 656} {send 351 641} {send 709 934} {end 486 327} {steer 956 827} {turn 699 162} {accept 586 660} {keeper 1000 509} {end 91 340} {bulk 948 457} {damage 530 96}":                                                                                                                                                                                         "the oracle's: a flow had ended, which the keeper had not heard, and the ledger that said so could not be read, so that its client was reset",
	"slow true, after 1, idle 0s, pipes 1, loops 3, busy 549, secure 500, kernelTLS 1, keeper 2672: {connect 619 357} {connect 941 516} {connect 607 114} {connect 559 652} {connect 252 842} {settle 932 948} {bulk 107 121} {turn 622 699} {cut 22 996} {cut 20 255} {cut 769 25} {connect 324 496} {settle 413 475} {connect 780 263} {keeper 230 552} {bulk 1019 336} {compute 220 112} {cut 603 465} {resume 194 865} {bulk 693 158} {urgent 950 283} {end 341 591} {turn 738 862} {turn 118 645} {keeper 131 134} {deliver 215 415} {bulk 423 904} {die 46 809} {cut 729 666} {deliver 506 570} {compute 251 325} {send 96 750} {bulk 517 508}":                                                                                                                              "a peer had sent what is no record to a connection that is the kernel's, and the process died in its turn: the next one told that as a failed connection, with the error that the kernel has for it",
	"slow true, after 1, idle 0s, pipes 1, loops 3, busy 549, secure 500, kernelTLS 1, keeper 2672: {connect 619 357} {connect 941 516} {connect 607 114} {connect 559 652} {connect 252 842} {cut 20 255} {resume 202 96} {turn 590 1016} {urgent 1018 261} {accept 645 288} {die 864 911} {connect 324 496} {turn 400 87} {deliver 218 1002} {settle 413 475} {connect 780 263} {bulk 693 158} {accept 957 262} {turn 150 211} {urgent 950 283} {turn 303 835} {fault 141 574} {accept 274 91} {pour 958 762} {end 341 591} {read 577 820} {update 533 337} {turn 738 862} {turn 118 645} {bulk 425 101} {end 941 525} {bulk 423 904}":                                                                                                                                           "the simulated kernel's: an alert was received in two halves, which does not happen where there is room for it",
	"slow false, after 1, idle 0s, loops 3, early 1, close 1, rates 716, secure 875, handshakes 2, kernelTLS 1, keeper 5350: {connect 326 183} {connect 1003 799} {connect 217 362} {connect 247 142} {connect 585 168} {connect 693 261} {turn 412 691} {connect 796 699} {settle 865 922} {end 685 544} {die 373 815} {end 594 937} {bulk 863 677}":                                                                                                                                                                                                                                                                                                                                                                                                                              "the oracle's: of a connection whose TLS is the kernel's, and which has ended in both directions, the counters do not say whether the process that died in its turn has taken an error",
	"slow false, after 0, idle 0s, backlog 2, files 27, loops 2, busy 581, rates 576, keeper 1209: {connect 542 512} {connect 379 62} {connect 948 732} {turn 440 908} {send 1002 522} {turn 189 119} {sleep 468 211} {turn 258 969} {turn 960 245} {sleep 464 751} {turn 20 295} {turn 298 387} {bulk 190 815} {connect 331 261} {send 277 638} {turn 610 819} {accept 18 954} {read 442 283} {accept 220 124} {steer 298 792} {send 518 469} {bulk 784 599} {standbyDies 275 101} {turn 990 800} {turn 672 509} {turn 1000 67} {shed 9 684} {accept 377 237} {accept 339 216} {turn 451 586} {turn 282 976} {send 105 769} {answer 996 489} {die 400 608} {turn 682 377} {die 807 4} {bulk 188 573} {bulk 551 472} {close 506 1010} {turn 476 263} {die 183 633} {shed 630 824}": "a flow was ended for want of memory after one side had failed, its process died, and its record had the error of that side",
	"slow true, after 0, idle 4s, slowConnects 1, pipes 1, updates 532, early 1, secure 65: {connect 481 711} {connect 885 888} {connect 628 124} {connect 142 385} {settle 216 486} {connect 172 612} {cut 839 689} {close 625 444}":                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                              "the oracle took a client for one that had left at the end of a record, that had ended within one and was closed later",
	"slow false, after 0, idle 4s, updates 625, loops 2, keeper 13945: {connect 921 707} {connect 540 963} {upgrade 48 675} {connect 343 557} {bulk 404 359}": "a flow with timeouts of its own had the default one for handshakes in the next process",
	"slow true, after 0, idle 4s, backlog 2, pipes 2, loops 3, busy 922, rates 685: {connect 213 424} {connect 318 1022} {connect 900 42} {connect 674 536} {connect 563 310} {connect 459 621} {turn 535 922} {turn 943 626} {turn 637 897} {turn 709 866} {bulk 657 964} {urgent 675 316} {sleep 264 67} {turn 746 303} {turn 399 662} {turn 1014 456} {turn 10 24} {end 637 886} {connect 539 951} {turn 365 751} {turn 141 974} {dieTwice 919 784} {turn 684 749} {connect 741 817} {bulk 346 827}":                                                                                                                                                                                 "the record of a flow that ended with its process said nothing of a Unix client",
	"slow false, after 0, idle 0s, backlog 2, loops 3, secure 142, handshakes 2, kernelTLS 1, keeper 15024: {settle 483 135} {connect 510 209} {sleep 250 248} {cut 933 852} {answer 547 125} {cut 30 284} {resume 887 476} {fault 591 351} {answer 212 696} {turn 458 497} {urgent 225 528} {settle 280 809} {pour 410 151} {turn 482 981} {read 948 381} {turn 242 4} {urgent 531 807} {standbyDies 855 37} {urgent 4 484} {send 543 607} {accept 783 429} {bulk 303 573} {deliver 958 622} {send 638 860} {cut 192 882} {turn 610 468} {sleep 538 748} {die 100 540} {end 102 679} {connect 386 180} {compute 660 89} {send 96 169} {sleep 879 120} {keeper 510 639} {bulk 725 855}": "a process died in the read that was told that a client whose TLS the kernel has had sent what is no record, and no other read is told; the event had said that there is an error",
	"slow true, after 0, idle 0s, loops 3, changes 1, busy 342, secure 549, kernelTLS 1, keeper 8931: {connect 714 1003} {send 641 592} {settle 575 23} {send 413 596} {cut 108 987}": "a send was told that the upstream whose TLS the kernel has had sent what is no record, and that was a failure of the upstream's connection",
	"slow true, after 1, idle 4s, slowConnects 1, builtins 910, words 885, loops 3, limits 1, early 1, busy 485, secure 570, handshakes 1, kernelTLS 1, keeper 15162: {connect 214 768} {connect 743 267} {connect 1001 156} {connect 919 178} {connect 889 514} {connect 633 357} {connect 663 557} {send 957 674} {answer 725 380} {connect 812 54} {cut 429 478} {settle 401 149} {send 1020 562} {turn 556 464} {pour 521 138} {send 407 658} {cut 321 535} {turn 722 813} {turn 500 384} {read 204 787} {keeper 743 320} {die 727 621} {accept 985 367} {accept 773 719} {heal 1011 196} {bulk 511 244} {cut 748 1018}": "and so was what a splice to it was told",
	"slow false, after 2, idle 0s, pipes 2, words 727, early 1, busy 488: {connect 165 828} {bulk 105 493} {upgrade 331 234} {turn 257 665} {turn 279 925} {turn 186 151} {turn 614 950} {turn 993 805} {turn 206 492} {turn 728 723} {die 8 643} {turn 555 576} {turn 108 705} {bulk 208 349} {turn 210 761} {fault 347 854} {turn 511 629} {bulk 435 396} {die 532 123} {turn 91 178} {turn 703 476} {turn 846 419} {turn 533 588} {turn 562 130} {turn 600 38} {connect 745 435} {turn 98 426} {turn 788 385} {turn 244 988} {bulk 892 392} {turn 849 914} {turn 818 308}":                                                "a reply could not be sent for want of memory, and the client got the next one, behind a gap",
	"slow true, after 2, idle 0s, backlog 2, loops 3, early 1, secure 574, linger 1: {connect 544 719} {connect 728 470} {connect 453 708} {connect 358 588} {bulk 730 587} {upgrade 496 302} {bulk 622 612} {fault 237 888} {send 282 338} {connect 698 310} {bulk 770 805}":                                                                                                                                                                                                                                                                                                                                                "a flow whose inner socket could not be written to for want of memory was said to have crashed",
	"slow false, after 2, idle 0s, slowConnects 1, pipes 1, words 150, loops 2, limits 1, secure 185, handshakes 2, linger 1: {connect 410 691} {bulk 912 29} {upgrade 715 169} {send 515 608} {close 59 421}":                                                                                                                                                                                                                                                                                                                                                                                                               "an upstream reset its connection, and a client whose TLS lingers in another process was told of a good end",
	"slow true, after 2, idle 0s, slowConnects 1, pipes 1, loops 3, changes 1, secure 355, linger 1: {connect 549 356} {connect 1004 771} {connect 685 803} {die 686 131} {turn 298 732} {shed 294 551} {upgrade 964 627} {cut 411 103} {cut 132 31} {deliver 802 134}":                                                                                                                                                                                                                                                                                                                                                      "the oracle took a client for one that had left well, that got what was in flight only after the process with its TLS had seen it leave",
	"slow false, after 2, idle 0s, backlog 1, words 524, loops 2, keeper 258: {connect 709 835} {connect 426 740} {connect 614 111} {connect 750 845} {connect 271 963} {turn 715 604} {connect 304 886} {turn 757 147} {turn 402 981} {turn 294 939} {upgrade 684 899}":                                                                                                                                                                                                                                                                                                                                                     "flows that a hand-over ends had ended a second too early, by their records, if it had waited for its holder",
	"slow true, after 0, idle 0s, files 41, loops 2, secure 575, handshakes 2, kernelTLS 1: {connect 1002 241} {settle 825 963} {send 464 4} {cut 305 257} {end 310 449}":                                                                                                                                                                                                                                                                                                                                                                                                                                                    "a flow that waited for its last bytes to arrive got an end in its other direction, which is not passed on then, and the oracle expected the record to say so",
	"slow true, after 0, idle 4s, slowConnects 1, pipes 2, limits 1, early 1, busy 352, secure 292, kernelTLS 1: {connect 826 827} {connect 6 88} {connect 853 711} {connect 389 684} {connect 648 174} {send 131 636} {connect 840 458} {turn 397 844} {connect 523 805} {turn 778 652} {connect 515 705} {turn 489 317} {turn 557 337} {connect 578 289} {turn 894 256} {read 722 780} {bulk 634 913} {turn 571 353} {bulk 369 32} {cut 340 625}":                                                                                                                                                                          "a flow that waited for its last bytes to arrive was settled as one whose half nothing is to be done for any more",
	"slow false, after 0, idle 0s, slowConnects 1, loops 3, secure 701, handshakes 2, linger 1: {connect 42 695} {connect 1001 750} {connect 993 820} {connect 1020 566} {connect 803 103} {connect 500 552} {connect 789 931} {bulk 77 530} {upgrade 166 114} {end 811 505} {bulk 868 85} {send 503 44} {connect 788 147} {fault 577 739} {turn 500 493} {turn 701 806}":                                                                                                                                                                                                                                                    "an inner socket could not be read, for want of memory, in a process that lingers, when it had told of an end, so that the other one saw a reset",
	"slow false, after 2, idle 0s, slowConnects 1, pipes 2, limits 1, early 1, busy 150, secure 326, linger 1: {connect 781 212} {connect 754 420} {connect 852 715} {connect 839 72} {turn 775 580} {compute 784 432} {turn 678 354} {connect 929 807} {bulk 937 886} {cut 141 326} {upgrade 422 510} {cut 884 55} {turn 784 49} {cut 458 927} {connect 77 288} {fault 841 656} {turn 421 135} {turn 824 608} {send 91 371} {turn 442 767} {bulk 859 439} {turn 560 379} {standbyDies 14 1023} {bulk 235 788}":                                                                                                              "a flow whose client was cut off, as an earlier process had told it, noted a reset when the event of that came later",
	"slow true, after 1, idle 0s, slowConnects 1, backlog 1, changes 1, early 1, close 1, secure 746, handshakes 1, kernelTLS 1, keeper 7170: {connect 562 940} {settle 903 672} {send 77 54} {cut 331 34} {bulk 191 216}":                                                                                                                                                                                                                                                                                                                                                                                                   "a flow whose source had failed leased an empty pipe while it waited for its last bytes to arrive",
	"slow true, after 0, idle 0s, builtins 602, early 1, busy 951, secure 518, handshakes 1, kernelTLS 1, keeper 2656: {connect 646 705} {connect 448 40} {connect 979 396} {settle 576 691} {keeper 697 918} {die 480 28} {deliver 989 895} {steer 421 661} {bulk 504 860}":                                                                                                                                                                                                                                                                                                                                                 "what is discarded of TLS that the kernel has is read, and the oracle took that for something to hold while memory was short",
	"slow false, after 0, idle 0s, slowConnects 1, backlog 2, words 830, updates 606, changes 1, limits 1, early 1, close 1, keeper 2964: {connect 210 562} {connect 976 460} {connect 391 925} {connect 787 478} {connect 644 123} {connect 361 696} {end 21 357} {send 569 593} {turn 96 782} {end 398 87} {turn 586 777} {standbyDies 976 555} {urgent 886 1021} {bulk 260 155} {read 94 538} {turn 208 954} {heal 767 630} {turn 195 194} {deliver 200 1022} {read 74 348} {turn 338 473} {accept 366 313} {accept 456 686} {read 558 741} {turn 513 587} {die 258 755} {send 504 177} {keeper 1017 883} {fault 937 628} {turn 897 575} {turn 488 668} {urgent 246 274} {bulk 832 55} {turn 759 549} {turn 272 810} {read 446 20} {turn 821 729} {turn 934 222} {bulk 907 179} {connect 268 463} {turn 733 643} {urgent 883 975} {send 265 181} {deliver 420 732} {turn 327 848} {die 217 794} {turn 458 439} {send 287 842} {close 121 255} {deliver 625 1014} {pour 472 536} {bulk 189 891} {send 446 466} {turn 137 376} {connect 339 251} {turn 289 930} {turn 209 714} {deliver 326 601} {accept 623 65} {deliver 726 606} {bulk 108 659} {answer 265 956} {urgent 1011 708} {send 992 846} {keeper 794 553} {turn 263 745}": "the record of a flow whose upstream failed before it had all of what the relay says first counted that as still to be delivered",
	"slow false, after 0, idle 0s, loops 3, changes 1, early 1, rates 420, secure 293, handshakes 1, linger 1: {connect 608 81} {connect 428 225} {connect 26 690} {upgrade 220 542} {turn 155 12} {upgrade 180 324} {cut 561 779} {fault 347 88} {turn 590 105} {connect 282 540} {turn 790 165} {bulk 517 17}": "a connection failed in a process that lingers, for want of memory, when the other one had delivered everything and had ended the flow",
	"slow false, after 1, idle 0s, secure 869, linger 1: {connect 248 862} {connect 859 85} {connect 618 548} {connect 297 214} {connect 521 317} {connect 46 974} {turn 593 919} {upgrade 416 301} {send 220 922} {reset 328 152} {turn 740 726} {send 964 851} {die 536 961} {cut 607 820} {bulk 474 83}":      "a flow had failed in both directions and waited for its last bytes to arrive; its record did not say what it had read and dropped, and the process died",
	"slow true, after 1, idle 0s, slowConnects 1, limits 1, secure 527, handshakes 1, linger 1: {connect 580 996} {connect 922 449} {connect 872 527} {connect 652 786} {connect 809 792} {bulk 703 1013} {upgrade 586 60} {cut 473 466} {die 739 355} {cut 344 744} {turn 685 1016}":                            "a client whose TLS another process has was cut, and the process died that ended its flow: the next one told the upstream's TLS of a good end",
	"slow true, after 0, idle 0s, slowConnects 1, backlog 2, updates 1014, loops 2, early 1, rates 29, secure 921, linger 1: {drain 567 991} {upgrade 766 218}":                                                                                                                                                  "a process that lingered kept the sockets of listeners that were closing",
	"slow true, after 1, idle 4s, updates 469, loops 2, changes 1, early 1, busy 178, secure 818, handshakes 1: {connect 244 851} {connect 28 542} {bulk 838 645} {turn 194 642} {turn 595 758} {turn 82 429} {bulk 198 595} {reset 1016 352} {turn 261 121}":                                                    "a client reset its connection as its handshake ended, the send of the last message took the error, and the upstream was told of an end",
	"slow true, after 2, idle 4s, backlog 1, loops 2, busy 962, secure 765: {connect 663 465} {connect 984 917} {connect 123 381} {bulk 986 924} {turn 652 506} {bulk 536 426} {turn 485 465} {connect 115 1000} {bulk 922 809} {reset 785 113}":                                                                 "an upstream with TLS sent something and reset its connection before the relay's handshake was over, and the oracle missed that at the next upstream",
	"slow false, after 0, idle 0s, slowConnects 1, words 593, updates 72, loops 3, limits 1, secure 498, handshakes 1, keeper 10065: {connect 115 908}":                                                                                                                                                          "what stands in front of the bytes of a client with TLS counted as its own, if the upstream has no TLS",
	"slow false, after 1, idle 4s, files 26, loops 3, early 1, busy 172, keeper 5192: {connect 440 774} {connect 138 585} {connect 553 290} {connect 886 684} {connect 482 623} {connect 139 473} {turn 205 497} {turn 101 637} {connect 63 770} {turn 810 1020} {drain 391 720}":                                "a client without a descriptor waited at a listener for as long as one that closes accepts, and was reset in that moment, which the oracle noticed a look later",
	"slow false, after 0, idle 0s, builtins 946, keeper 12424: {connect 475 783} {connect 1008 705} {connect 733 571} {connect 615 285} {connect 701 9} {connect 850 30} {turn 419 636} {send 953 951} {turn 974 508} {turn 323 668} {turn 1010 629} {turn 734 386} {turn 702 978} {fault 275 448} {turn 564 904} {turn 884 64} {turn 593 514} {deliver 746 549} {keeper 907 806} {turn 87 67} {steer 431 210} {kill 537 529} {kill 153 849} {die 792 693} {connect 35 292} {connect 217 368} {turn 34 520} {fault 758 992} {end 1002 918} {turn 956 343} {answer 431 432} {resume 138 398} {turn 464 715} {turn 748 875} {bulk 317 580} {upgrade 761 902}": "the keeper, which was full, refused a pipe that a flow used, after it had been said to be held, and the oracle only knew of sockets",
	"slow true, after 0, idle 4s, slowConnects 1, keeper 12470: {connect 198 517} {connect 71 891} {sleep 184 839} {turn 571 550} {turn 215 953} {turn 280 130} {turn 164 756} {turn 740 844} {send 320 853} {read 169 722} {read 324 111} {read 964 360} {deliver 167 560} {send 500 90} {fault 822 370} {send 452 327} {read 813 679} {reset 784 814} {dieTwice 737 362} {turn 579 927} {turn 568 567} {resume 107 973} {fault 702 538} {damage 124 502}":                                                                                                                                                                                                 "the next process had a new ledger in place of one that could not be read, and died",
	"slow false, after 0, idle 0s, slowConnects 1, updates 251, loops 2, limits 1, close 1, busy 361, keeper 149: {connect 900 354} {connect 54 153} {turn 348 971} {turn 204 905} {turn 688 84} {damage 759 205} {kill 975 40}":                                                                                                                                                                                                                                                                                                                                                                                                                            "a process died when it had restored the others, and told its keeper that a ledger is not wanted any more, but not yet that of its flow",
	"slow false, after 2, idle 0s, slowConnects 1, backlog 1, files 44, updates 876, changes 1, secure 382, keeper 3294: {send 571 299} {turn 116 673} {turn 729 534} {accept 354 873} {compute 304 554} {heal 766 930} {turn 645 952} {send 791 261} {turn 447 944} {turn 602 658} {cut 536 983} {compute 900 389} {cut 968 313} {dieTwice 843 761} {turn 846 721} {send 794 787} {read 942 437} {send 576 590} {turn 592 219} {die 927 265} {holderFails 108 127} {turn 713 752} {turn 251 628}":                                                                                                                                                          "a listener's socket was not held, because its holder had failed, and was asked again by the clock",
	"slow true, after 0, idle 0s, slowConnects 1, pipes 2, builtins 115, words 730, limits 1, rates 691, secure 847, handshakes 1, keeper 11965: {connect 870 729} {connect 565 414} {deliver 51 904} {turn 983 365} {connect 512 340} {turn 639 804} {turn 343 671} {deliver 144 248} {deliver 648 274} {send 30 898} {close 579 792}":                                                                                                                                                                                                                                                                                                                     "a client with TLS whose upstream is an echo left without close_notify, had sent nothing, and the flow ended well",
	"slow true, after 2, idle 0s, loops 2, changes 1, early 1, secure 139, handshakes 1: {connect 16 758} {connect 841 687} {upgrade 77 393} {turn 791 801} {shed 247 847} {compute 926 883} {bulk 226 467} {read 563 662} {turn 390 51} {fault 37 66} {steer 1015 453}":                                                                                                                                                                                                                                                                                                                                                                                    "what ends a client's handshake could not be sent, for want of memory, and both waited for ever",
	"slow true, after 0, idle 0s, slowConnects 1, builtins 208, limits 1, early 1, busy 687, secure 743: {connect 281 745} {turn 343 464} {turn 174 538} {bulk 470 999} {reset 695 70}":                                                                                                                                                                                                                                                                                                                                                                                                                                                                     "a client with TLS whose upstream discards reset its connection, and the upstream was named as who did",
	"slow false, after 1, idle 0s, builtins 736, early 1, busy 970, secure 107, handshakes 1: {connect 517 61}": "a client with TLS whose upstream discards got the end of the connection without close_notify",
	"slow true, after 1, idle 0s, pipes 1, words 239, loops 3, early 1, busy 594, rates 323: {connect 510 186}": "what stands in front of a client's bytes counted as its own for the bandwidth, and they waited",
	"slow false, after 0, idle 4s, backlog 1, builtins 142, loops 3, busy 287: {connect 614 976} {connect 742 494} {connect 299 793} {connect 684 214} {connect 306 284} {bulk 512 461} {connect 667 0} {turn 700 467} {upgrade 599 15} {bulk 1009 688} {connect 917 926} {urgent 36 862} {fault 891 345} {turn 2 926} {turn 284 279} {turn 616 483} {die 791 606} {connect 869 743} {turn 19 477} {bulk 526 894}": "an urgent byte was not known when the event of the other side came first, in the same wait, and the process died in the read",
	"slow false, after 2, idle 0s, builtins 608, loops 2, busy 178: {connect 155 341} {connect 918 173} {connect 326 698} {connect 468 471} {settle 217 876} {connect 48 269} {bulk 284 341} {connect 696 587} {connect 737 213} {turn 973 873} {send 253 102} {turn 852 949} {turn 609 683} {turn 738 303} {turn 867 192} {die 223 382} {end 784 148} {connect 596 543} {turn 518 400} {bulk 598 770}":            "a process that died while an echo ended left a record of which the next one said that nothing had come back",
	"slow false, after 0, idle 0s, backlog 1, builtins 162, loops 2, busy 1011: {connect 181 325} {dieTwice 775 538} {shed 774 993}":                                                                                                                                                                                                                                                                                                                                                                                                               "nobody said when an echo's first byte had come, if the process had died before it was noted",
	"slow true, after 2, idle 0s, loops 3, changes 1, limits 1, early 1, busy 6: {connect 894 277} {bulk 144 80} {dieTwice 348 245} {settle 56 719} {sleep 589 65} {turn 113 635} {die 420 349} {turn 169 525} {die 301 782} {bulk 327 478}":                                                                                                                                                                                                                                                                                                       "a process with fewer loops died while its engine was made, and what the other loops had counted was gone with it",
	"slow false, after 2, idle 0s, loops 2: {connect 328 985} {connect 870 3} {connect 277 983} {connect 548 92} {connect 1006 5} {connect 738 864} {connect 715 896} {turn 545 482} {send 687 456} {connect 759 371} {accept 913 366} {upgrade 787 902} {send 545 1015} {turn 209 577} {reset 465 1017} {die 88 726} {turn 983 327} {turn 37 811} {turn 148 236}":                                                                                                                                                                                 "a process died in the read that took the error of a Unix socket, which recvmmsg does before it reads what came first, and the client got an end",
	"slow false, after 0, idle 0s, loops 3, busy 500: {connect 101 56} {connect 534 170} {connect 295 110} {bulk 816 977} {connect 77 401} {die 342 274} {turn 447 985} {turn 59 991} {kill 646 717} {send 793 186} {upgrade 21 621} {close 785 79} {die 683 535} {turn 462 381}":                                                                                                                                                                                                                                                                  "a process died in the read that took the error of a Unix socket, which recvmmsg does before it reads what came first, and the client got an end",
	"slow false, after 2, idle 0s, backlog 1, changes 1, busy 841: {connect 142 981} {connect 566 907} {connect 523 818} {connect 696 185} {connect 1006 348} {connect 805 851} {upgrade 798 171} {turn 980 319} {reset 527 482} {bulk 324 175} {die 84 800} {turn 670 540} {connect 676 417} {turn 607 432} {connect 883 686} {die 965 191} {turn 685 360}":                                                                                                                                                                                       "two flows had the same ID: a process with fewer loops has let go of a loop's ledger, and the next one, which had that loop again, began to count anew",
	"slow false, after 2, idle 0s, loops 3, busy 854: {connect 136 485} {end 446 252} {connect 747 20} {bulk 771 845} {bulk 548 547} {upgrade 480 294} {send 41 363} {bulk 597 385} {connect 995 535} {bulk 781 232} {send 988 635} {end 353 500} {send 757 168} {turn 397 803} {turn 1011 860} {die 937 20} {close 688 638} {turn 976 688}":                                                                                                                                                                                                       "what a turn had moved before the read in which the process died was not counted by the loop, if that read could not be resolved",
	"slow false, after 2, idle 0s, backlog 1, limits 1: {connect 910 445} {connect 846 537} {turn 131 829} {connect 977 998} {turn 510 914} {upgrade 204 967} {dieTwice 697 929} {turn 679 462} {connect 20 250} {urgent 12 588} {connect 220 686} {turn 952 180}":                                                                                                                                                                                                                                                                                 "a process that restores reads before it knows of urgent data, dies, and the next one delivers a byte of the scratch buffer in place of the urgent one",
	"slow false, after 0, idle 0s: {connect 665 667} {bulk 784 53} {end 59 864} {send 959 481} {urgent 251 135} {turn 897 336} {end 523 643} {upgrade 239 268}":                                                                                                                                                                                                                                                                                                                                                                                    "a connection that had ended well with an urgent byte in it was taken for one that was reset",
	"slow false, after 2, idle 4s: {connect 53 919} {settle 553 842} {send 288 465} {dieTwice 221 619} {turn 748 242} {turn 835 486} {connect 650 370} {send 288 29} {turn 849 876}":                                                                                                                                                                                                                                                                                                                                                               "the loop's count of bytes held in buffers did not know those of an earlier process, and was negative from then on",
	"slow true, after 0, idle 4s, backlog 1, limits 1: {connect 0 0} {connect 865 869} {settle 694 686} {send 559 549} {connect 248 313} {send 424 917} {holderFails 546 27} {sleep 67 116} {die 34 578} {deliver 862 613} {turn 729 748}":                                                                                                                                                                                                                                                                                                         "a flow whose process died before it had noted the upstream's first bytes timed out, because of Timeouts.FirstByte, though they had been delivered",
	"slow true, after 1, idle 0s, backlog 2, changes 1: {connect 0 0} {fault 604 340} {turn 316 837} {fault 566 1023} {turn 824 998} {sleep 982 603} {turn 86 106}":                                                                                                                                                                                                                                                                                                                                                                                "a loop that could not watch its listeners after a pause, for want of memory, never accepted again",
	"slow false, after 0, idle 0s, loops 3, changes 1, limits 1, rates 952: {connect 246 263} {connect 823 673} {connect 274 371} {connect 547 618} {turn 301 577} {turn 165 72} {accept 659 439} {connect 337 950} {dieTwice 29 489} {die 394 32} {turn 243 482} {turn 249 418} {turn 414 484} {reset 28 847} {turn 925 406}":                                                                                                                                                                                                                     "a process with fewer loops dropped a ledger and died before it had dropped the descriptors of a flow that had ended, which the next one then took for one that got lost",
	"slow true, after 0, idle 0s, changes 1, early 1, busy 101, keeper 12756: {connect 408 594} {turn 907 663} {fault 868 609} {turn 750 876} {pour 991 551} {turn 631 217} {fault 828 439} {bulk 639 629} {turn 657 588} {deliver 443 392} {answer 663 282} {fault 875 926} {die 335 290} {turn 923 752} {deliver 316 611} {urgent 760 650} {deliver 354 149} {bulk 155 183} {turn 944 951} {heal 89 981} {deliver 406 686} {turn 366 425} {turn 375 877} {kill 525 390} {upgrade 897 404} {turn 616 144} {send 600 495} {fault 857 823}":         "a worker on standby had a ledger that the one before dropped, and kept its flows in it, which nobody held",
	"slow true, after 1, idle 0s, backlog 2, pipes 2, loops 3, changes 1, early 1, rates 138, secure 314, handshakes 1, kernelTLS 1: {connect 96 738} {kill 547 165} {connect 786 285} {bulk 34 178} {turn 563 507} {bulk 408 879} {compute 541 499} {turn 827 552} {connect 914 848} {bulk 687 660} {deliver 880 269} {steer 50 160} {turn 244 340} {bulk 453 872}":                                                                                                                                                                               "65536 bytes are asked for, and memory is short",
	"slow true, after 0, idle 0s, backlog 2, words 650, loops 2, changes 1, early 1, busy 76, keeper 13289: {connect 492 182} {turn 213 126} {turn 927 912} {connect 139 863} {fault 767 820} {bulk 1021 251} {upgrade 455 390}":                                                                                                                                                                                                                                                                                                                   "5 bytes of what was to be said before it relays have not arrived",
	"slow true, after 0, idle 0s, early 1, secure 677, linger 1: {connect 804 782} {connect 661 274} {connect 834 789} {connect 416 394} {turn 728 192} {upgrade 846 518} {send 305 99} {urgent 465 865} {settle 224 769} {cut 999 1015}":                                                                                                                                                                                                                                                                                                          "client-truncated, which nothing explains: an urgent byte of the Unix upstream was taken for something to read",
	"slow false, after 2, idle 0s, backlog 1, updates 994, loops 2, early 1, keeper 6843: {connect 303 989} {resume 139 455} {fault 704 830} {keeper 862 908} {send 906 349} {answer 375 888} {turn 413 491} {bulk 188 232} {turn 490 853} {turn 645 135} {deliver 9 257} {send 415 279} {accept 306 247} {sleep 79 755} {send 965 959} {turn 34 606} {fault 627 345} {turn 223 550} {accept 687 112} {keeper 411 645} {read 390 332} {send 333 597} {deliver 315 312} {send 15 112} {turn 88 530} {turn 351 515} {bulk 705 868} {urgent 844 650}": "urgent data waits at side 0, and the loop does not know: nor does it read from it any more, since its destination has failed",
	"slow true, after 1, idle 0s, slowConnects 1, files 27, loops 2, changes 1, limits 1, early 1, busy 17: {connect 109 707} {connect 911 15} {connect 39 21} {connect 8 846} {connect 986 348} {connect 165 1021} {connect 992 370} {resume 57 786} {turn 959 353} {turn 479 663} {answer 144 735} {turn 1016 160} {turn 72 327} {connect 458 274} {fault 671 619} {upgrade 661 709} {bulk 688 131}":                                                                                                                                             "loop 0 sleeps, and waits for descriptors: its pause had just ended",
	"slow false, after 0, idle 0s, backlog 1, files 28, words 113, loops 2, changes 1, early 1: {connect 426 621} {connect 693 474} {turn 127 339} {upgrade 534 983} {connect 569 105} {fault 917 931} {turn 783 585} {turn 977 166} {turn 524 531}":                                                                                                                                                                                                                                                                                               "12000 bytes of what was to be said before it relays have not arrived: with those that wait, they were more than replies may be",
	"slow true, after 1, idle 0s, slowConnects 1, builtins 694, changes 1, limits 1, early 1, busy 547, secure 389, linger 1, keeper 2576: {connect 760 587} {connect 769 413} {connect 586 710} {connect 157 558} {read 412 841} {die 935 883} {dieTwice 886 486} {accept 657 914} {read 335 224} {upgrade 474 670} {accept 346 425} {deliver 516 234} {die 555 318} {turn 860 696} {steer 204 690} {turn 353 195} {compute 481 673} {compute 23 121} {send 900 409} {read 822 569} {update 207 444} {accept 99 1} {deliver 47 252} {deliver 333 564} {turn 667 809} {answer 767 564} {deliver 608 918} {compute 31 577} {accept 409 970} {turn 857 918} {turn 599 294} {holderFails 138 198} {fault 283 300} {send 335 81} {turn 18 29} {die 337 462} {urgent 203 165} {read 763 709} {cut 194 282} {turn 483 84} {read 328 1016} {turn 73 55} {connect 647 752} {turn 620 13} {turn 671 947} {steer 419 557} {connect 156 483} {die 167 256} {bulk 1022 577}": "a client was not accepted, and does not wait at a listener any more: the keeper could not hold the listener yet when its process died",
	"slow false, after 2, idle 0s, slowConnects 1, pipes 1, early 1, close 1, busy 703, secure 605, handshakes 2, linger 1: {connect 568 179} {connect 931 156} {connect 394 566} {connect 406 517} {turn 532 929} {upgrade 252 495} {send 16 668} {turn 453 507} {cut 449 498} {connect 676 313} {cut 379 995} {connect 894 680} {kill 394 309} {send 318 728} {turn 16 213} {die 871 868} {connect 496 184} {turn 40 192} {turn 718 717} {compute 219 262} {turn 707 894} {turn 784 401} {turn 904 101} {read 163 550} {cut 961 484} {bulk 410 262} {settle 87 527}":                                                                                                                                                                                                                                                                                                                                                                                           "client-truncated, which nothing explains: the upstream had sent something after the client had left",
	"slow true, after 0, idle 4s, pipes 1, builtins 470, loops 2, early 1, secure 129, handshakes 1, kernelTLS 1, keeper 9985: {connect 906 613} {connect 751 126} {connect 815 633} {turn 416 814} {end 567 384} {bulk 891 775} {close 615 69}":                                                                                                      "side 0 has got the end after 0 of 0 bytes: its upstream with TLS had left when it had answered the handshake, and was told that nothing more comes",
	"slow true, after 2, idle 0s, backlog 2, pipes -1, updates 783, secure 357, handshakes 1, keeper 15273: {connect 392 69} {settle 19 983} {send 538 240} {cut 765 668} {send 261 779}":                                                                                                                                                             "client-truncated, which nothing explains: a client of HTTP/2 left when it had all, and got what its upstream sent after that",
	"slow true, after 0, idle 0s, pipes 2, early 1, secure 327, linger 1, keeper 13538: {connect 843 19} {deliver 456 810} {turn 925 154} {turn 926 738} {bulk 660 928} {upgrade 854 160} {turn 905 813} {close 136 934}":                                                                                                                             "client-closed, which nothing explains: a client of HTTP/1.1 left before it had sent anything",
	"slow false, after 0, idle 0s, slowConnects 1, backlog 2, builtins 6, updates 458, loops 2, early 1, secure 6, linger 1: {connect 186 986} {connect 901 195} {connect 973 535} {connect 731 345} {connect 967 563} {shed 703 622} {upgrade 156 574} {connect 173 75} {send 361 467} {settle 987 612} {cut 204 748} {turn 20 841} {urgent 31 657}": "client-truncated, which nothing explains: the Unix upstream had sent an urgent byte since the client had left",
	"slow true, after 0, idle 4s: {connect 171 101}": "between two turns, the turn note named the flow whose timer had come up last",
}

// parseSchedule is the opposite of [simSchedule.String].
func parseSchedule(text string) (x simSchedule, err error) {
	settings, steps, _ := strings.Cut(text, ":")
	var idle string
	if _, err := fmt.Sscanf(settings, "slow %t, after %d, idle %s", &x.slow, &x.after, &idle); err != nil {
		return x, err
	}
	if x.idle, err = time.ParseDuration(strings.TrimSuffix(idle, ",")); err == nil {
		err = parseOptions(x.options(), strings.Split(settings, ", ")[3:])
	}
	if err == nil {
		err = parseSteps(steps, simNames[:], func(kind, a, b int) { x.steps = append(x.steps, simStep{simKind(kind), a, b}) })
	}
	return x, err
}

// parseOptions sets options, each of which has a name and a number.
func parseOptions(options []simOption, settings []string) error {
	for _, setting := range settings {
		name, value, _ := strings.Cut(setting, " ")
		at := slices.IndexFunc(options, func(o simOption) bool { return o.name == name })
		n, err := strconv.Atoi(value)
		switch {
		case at < 0:
			return fmt.Errorf("no setting %s", name)
		case err != nil:
			return err
		}
		options[at].set(n)
	}
	return nil
}

// parseSteps calls add for each step of a text.
func parseSteps(text string, names []string, add func(kind, a, b int)) error {
	for _, step := range strings.FieldsFunc(text, func(r rune) bool { return r == '{' || r == '}' }) {
		var name string
		var a, b int
		if strings.TrimSpace(step) == "" {
			continue
		}
		if _, err := fmt.Sscan(step, &name, &a, &b); err != nil {
			return fmt.Errorf("%s: %w", step, err)
		}
		kind := slices.Index(names, name)
		if kind < 0 {
			return fmt.Errorf("%s: no such step", step)
		}
		add(kind, a, b)
	}
	return nil
}

func TestSeedsThatFound(t *testing.T) {
	for text, what := range schedulesThatFound {
		x, err := parseSchedule(text)
		if err != nil || x.String() != text {
			t.Fatalf("%s is read as %s: %v", text, x, err)
		}
		if at, s := x.run(); s.wrong != nil {
			t.Errorf("this has found before: %s; step %d: %v\n%s", what, at, s.wrong, text)
		}
	}
}
