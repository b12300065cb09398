package relay

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/simkernel"
	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testnet"
)

// gramStep is one step of a schedule of datagrams, like simStep.
type gramStep struct {
	kind gramDo
	a, b int
}

type gramDo uint8

const (
	gramTurn gramDo = iota
	gramConnect
	gramSend
	gramAnswer
	gramClientRead
	gramUpstreamRead
	gramDeliver
	gramLose
	gramSleep
	gramUpstreamGoes
	gramUpstreamComes
	gramClientGoes
	gramDie
	gramDieTwice
	gramKill
	gramUpgrade
	gramFault
	gramHeal
	gramHolderFails
	gramSettle
	gramRelisten
	gramDrainBegins
	gramDrainEnds
	gramSuccessorComes
	gramRemove
	gramSteer
	gramTrim
	gramShed
	gramKeeperActs
	gramStandbyDies
	gramRouteGoes
	gramRouteComes
	gramFilters
	gramDoes
)

var gramNames = [gramDoes]string{"turn", "connect", "send", "answer", "clientRead", "upstreamRead", "deliver", "lose", "sleep", "upstreamGoes", "upstreamComes", "clientGoes", "die", "dieTwice",
	"kill", "upgrade", "fault", "heal", "holderFails", "settle", "relisten", "drain", "drainEnds", "successor", "remove", "steer", "trim", "shed", "keeper", "standbyDies", "routeGoes", "routeComes", "filters"}

// gramWeights say how often a step is drawn.
var gramWeights = [gramDoes]int{
	gramTurn: 30, gramConnect: 5, gramSend: 20, gramAnswer: 14, gramClientRead: 6, gramUpstreamRead: 14, gramDeliver: 12, gramLose: 1, gramSleep: 4,
	gramUpstreamGoes: 2, gramUpstreamComes: 3, gramClientGoes: 1, gramDie: 5, gramDieTwice: 1, gramKill: 1, gramUpgrade: 2, gramFault: 4, gramHeal: 4, gramHolderFails: 1, gramSettle: 2, gramRelisten: 1,
	gramDrainBegins: 3, gramDrainEnds: 2, gramSuccessorComes: 3, gramRemove: 2,
	gramSteer: 4, gramTrim: 1, gramShed: 3,
}

func (x gramStep) String() string { return fmt.Sprintf("{%s %d %d}", gramNames[x.kind], x.a, x.b) }

// gramSchedule is what a seed stands for.
type gramSchedule struct {
	kind  gramWorld
	steps []gramStep
}

func drawGramSchedule(seed uint64) (x gramSchedule) {
	r := rand.New(rand.NewPCG(seed, 2))
	some := func(n int) bool { return r.IntN(n) == 0 }
	x.kind = gramWorld{network: r.IntN(4), slow: some(2), joins: some(3), after: r.IntN(3), noGSO: some(6), noGRO: some(6)}
	if some(3) {
		x.kind.bufferMax = 3000 + r.IntN(20_000)
	}
	x.kind.config = DatagramConfig{TOS: TOSAction(r.IntN(3)), OnUnreachable: UnreachableAction(r.IntN(3))}
	if some(4) {
		x.kind.config.Replies = 1 + r.IntN(2)
	}
	if some(4) {
		x.kind.config.Amplification, x.kind.config.AmplificationAlways = 1+r.IntN(4), some(2)
	}
	if some(5) {
		x.kind.maxFlows = 1 + r.IntN(4)
	}
	if some(6) {
		x.kind.limit = 30 + r.IntN(20)
	}
	x.kind.phase = time.Duration(r.Int64N(int64(time.Minute)))
	x.kind.loops, x.kind.changes = [...]int{0, 0, 2, 3}[r.IntN(4)], some(3)
	if some(3) {
		x.kind.sniff = 1 + r.IntN(1<<10)
	}
	sum := 0
	for _, w := range gramWeights {
		sum += w
	}
	deadly, drains, removes, overload := !some(3), some(4), some(3), some(4)
	x.steps = append(x.steps, gramStep{kind: gramConnect}, gramStep{kind: gramConnect})
	for range 20 + r.IntN(120) {
		n, kind := r.IntN(sum), gramDo(0)
		for ; n >= gramWeights[kind]; kind++ {
			n -= gramWeights[kind]
		}
		if !deadly && kind >= gramDie && kind <= gramKill {
			kind = gramTurn
		}
		if !drains && kind >= gramDrainBegins && kind <= gramSuccessorComes || !removes && kind == gramRemove || !overload && kind >= gramSteer {
			kind = gramTurn
		}
		x.steps = append(x.steps, gramStep{kind, r.IntN(1 << 10), r.IntN(1 << 10)})
	}
	if some(3) {
		x.kind.rates = 1 + r.IntN(1<<10)
	}
	if some(3) {
		x.kind.preface = 1 + r.IntN(gramPrefaces-1)
	}
	if x.kind.network != 3 && some(3) {
		x.kind.named = 1 + r.IntN(gramNameds-1)
	}
	x.kind.early = some(2)
	x.kind.close = some(8)
	if some(5) {
		x.kind.newFlows = 1 + r.IntN(200)
	}
	if some(3) {
		x.kind.busy = 1 + r.IntN(1<<10)
	}
	if some(5) && x.kind.preface == gramPrefaceNone && x.kind.named == gramNamedNone {
		x.kind.builtins = 1 + r.IntN(3)
	}
	if some(4) && x.kind.network != 3 && x.kind.named == gramNamedNone {
		x.kind.several, x.kind.sniff = true, max(1, x.kind.sniff) // the hook that is shown the first datagram says whose it is
	}
	if x.kind.noIPv6 = x.kind.network == 0 && some(3); x.kind.noIPv6 {
		x.kind.loops = max(2, x.kind.loops)
	}
	if real := r.IntN(2) * (1 + r.IntN(1<<14)); simKeepers {
		x.kind.real = real
	}
	if x.kind.network != 3 && some(4) {
		x.kind.dscp = r.IntN(1 << 12)
	}
	for i := range x.steps {
		if n := r.IntN(40); x.kind.real > 0 && x.steps[i].kind == gramTurn && n < 8 {
			x.steps[i].kind = [...]gramDo{gramKeeperActs, gramStandbyDies}[n/7]
		}
	}
	if x.kind.network != 3 && some(4) {
		x.kind.routes = 1 + r.IntN(1<<10)
		for i := range x.steps {
			if n := r.IntN(24); x.steps[i].kind == gramTurn && n < 5 {
				x.steps[i].kind = [...]gramDo{gramRouteGoes, gramRouteGoes, gramRouteComes, gramRouteComes, gramFilters}[n]
			}
		}
	}
	return x
}

// gramLengths are what sizes of datagrams are drawn from.
var gramLengths = [...]int{gramHead, 13, 20, 100, 500, 1200, 1400, 1472, 3000}

// do does a step.
func (s *gramSimulation) do(x gramStep) {
	s.tick()
	if s.does(x) {
		s.seen.steps[x.kind]++
	}
}

// does reports whether there was something to do.
func (s *gramSimulation) does(x gramStep) bool {
	size, count := gramLengths[x.b%len(gramLengths)], 1
	if x.b>>4%3 == 0 {
		count = 1 + x.b>>6%12
	}
	if x.b>>4%31 == 0 {
		count = 90
	}
	less, run, tos := x.a>>3%7*(x.a>>2&1), x.a>>6&1 == 0, uint8(x.b>>2)
	if size*count > 60_000 {
		size = 500
	}
	if count > 60 {
		run = false
	}
	switch x.kind {
	case gramTurn:
		for range 1 + x.a%3 {
			s.turnLoop(x.b)
		}
	case gramConnect:
		return s.connect()
	case gramSend:
		if len(s.clients) > 0 {
			s.clientSends(x.a%len(s.clients), size, count, less, run, tos)
		}
	case gramAnswer:
		return len(s.heard) > 0 && s.upstreamAnswers(len(s.heard)-1-x.a%min(len(s.heard), 4), size, count, less, run, tos)
	case gramClientRead:
		return len(s.clients) > 0 && s.clientReads(x.a%len(s.clients), 1+x.b%20)
	case gramUpstreamRead:
		return s.upstreamReads(x.a%2, 1+x.b%30)
	case gramDeliver:
		some := s.world.PacketsInFlight() > 0
		for range 1 + x.b%10 {
			if n := s.world.PacketsInFlight(); n > 0 {
				s.world.DeliverPacket(x.a % n)
			}
		}
		return some
	case gramLose:
		n := s.world.PacketsInFlight()
		if n > 0 {
			s.world.LosePacket(x.a % n)
		}
		return n > 0
	case gramSleep:
		s.world.Sleep(time.Duration(1+x.a%2000) * time.Millisecond)
	case gramUpstreamGoes:
		return s.upstreamGoes(x.a % 2)
	case gramUpstreamComes:
		return s.upstreamComes(x.a % 2)
	case gramClientGoes:
		if len(s.clients) > 0 {
			s.clientGoes(x.a % len(s.clients))
		}
	case gramDieTwice:
		s.diesNext = 1 + x.b%12
		fallthrough
	case gramDie:
		s.process.DieAfter(1 + x.a%60)
	case gramKill:
		s.kill()
	case gramUpgrade:
		return s.keeper.upgrade(x.a, s)
	case gramFault:
		s.faults, s.faulted, s.failsWith = s.seen.counted(gramFaults(x.a, x.b)), true, gramSendFails(x.a)
		s.process.Fault = s.faults
	case gramHeal:
		s.process.Fault, s.faults = nil, nil
	case gramHolderFails:
		s.keeper.fails = 1 + x.a%3
	case gramSettle:
		s.settleGrams()
	case gramRelisten:
		return s.closeListener()
	case gramDrainBegins:
		return s.beginDrain()
	case gramDrainEnds:
		return s.endDrain()
	case gramSuccessorComes:
		return s.successorComes()
	case gramSteer:
		return s.steer(x.a, x.b, s.call)
	case gramTrim:
		s.trims(s.call)
	case gramShed:
		return s.sheds(x.a, x.b, s.turn, s.call)
	case gramKeeperActs:
		return s.keeper.real != nil && s.keeper.real.acts(x.a)
	case gramStandbyDies:
		return s.keeper.real != nil && s.keeper.real.standbyDies(x.a)
	case gramRouteGoes:
		return s.routeGoes(x.a, x.b)
	case gramRouteComes:
		return s.routeComes(x.a, x.b)
	case gramFilters:
		return s.filters(x.a, x.b)
	case gramRemove:
		return s.removeUpstream(x.a % 2)
	}
	return true
}

// gramSendErrors are what sends fail with, by the kind of a fault.
var gramSendErrors = [...]sys.Errno{sys.EAGAIN, sys.EINTR, sys.ENOBUFS, sys.EPERM, sys.EMSGSIZE, sys.EIO, sys.EINVAL}

// gramSendFails returns what sends fail with, by a fault of this number; 0: they do not.
func gramSendFails(number int) sys.Errno {
	if k := number % gramFaultKinds; k < len(gramSendErrors) {
		return gramSendErrors[k]
	}
	return 0
}

const gramFaultKinds = 12

// gramFaults are calls about datagrams that fail, or move less than they could.
func gramFaults(kind, every int) func(simkernel.Call, int) (int, sys.Errno) {
	r := rand.New(rand.NewPCG(uint64(kind), uint64(every)))
	every = 2 + every%5
	return func(c simkernel.Call, most int) (int, sys.Errno) {
		if r.IntN(every) > 0 {
			return most, 0
		}
		e := gramSendFails(kind)
		switch k := kind % gramFaultKinds; {
		case e != 0 && (c == "send-batch" || c == "send"):
			return 0, e
		case k == 8 && c == "send-batch", k == 9 && c == "recv-batch":
			return (most + 1) / 2, 0
		case k == 9 && c == "epoll-wait", k == 1 && c == "recv-batch":
			return 0, sys.EINTR
		case k == 10 && c == "datagram":
			return 0, sys.EMFILE
		case k == 11 && c == "recv-batch":
			return 0, sys.ENOMEM
		}
		return most, 0
	}
}

// gramFaultsWanted are the calls that must have failed in many schedules, and how.
func gramFaultsWanted() (all []string) {
	for _, e := range gramSendErrors {
		all = append(all, faultName("send-batch", e), faultName("send", e))
	}
	return append(all, faultName("send-batch", 0), faultName("recv-batch", 0), faultName("recv-batch", sys.EINTR), faultName("recv-batch", sys.ENOMEM), faultName("epoll-wait", sys.EINTR),
		faultName("datagram", sys.EMFILE))
}

// run runs a schedule. An error says what was wrong, and after how many steps.
func (x *gramSchedule) run() (at int, s *gramSimulation) {
	s = newGramSimulation(x.kind)
	defer s.finish()
	for i, step := range x.steps {
		s.traceStep(i, step, s.describeGramLoops)
		s.do(step)
		if s.keeper.real != nil {
			s.keeper.real.idle()
		}
		s.lookAtGrams()
		if s.wrong != nil {
			return i, s
		}
	}
	s.peersDo, s.process.Before = nil, nil
	if x.kind.close {
		s.closeGrams()
		return len(x.steps), s
	}
	s.settleGrams()
	s.checkGrams()
	return len(x.steps), s
}

// shrink removes what a failing schedule does not need to fail.
func (x *gramSchedule) shrink(wrong error) {
	what := func(err error) string { // without numbers
		text, _, _ := strings.Cut(fmt.Sprint(err), "\n")
		return strings.Map(func(r rune) rune {
			if r >= '0' && r <= '9' {
				return -1
			}
			return r
		}, text[:min(len(text), 60)])
	}
	fails := func(steps []gramStep) bool {
		y := gramSchedule{x.kind, steps}
		_, s := y.run()
		return s.wrong != nil && what(s.wrong) == what(wrong)
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

func (x gramSchedule) String() string {
	var b strings.Builder
	for _, o := range x.kind.options() {
		if n := o.get(); n != 0 {
			fmt.Fprintf(&b, "%s %d, ", o.name, n)
		}
	}
	text := strings.TrimSuffix(b.String(), ", ") + ":"
	for _, step := range x.steps {
		text += " " + step.String()
	}
	return text
}

// options are those of a schedule that are not 0.
func (x *gramWorld) options() []simOption {
	c := &x.config
	return []simOption{
		numberOption("network", &x.network), flagOption("noIPv6", &x.noIPv6), flagOption("slow", &x.slow), numberOption("phase", &x.phase), flagOption("joins", &x.joins), numberOption("bufferMax", &x.bufferMax),
		numberOption("after", &x.after), numberOption("maxFlows", &x.maxFlows), numberOption("limit", &x.limit), flagOption("noGSO", &x.noGSO), flagOption("noGRO", &x.noGRO),
		numberOption("loops", &x.loops), numberOption("sniff", &x.sniff), numberOption("builtins", &x.builtins), flagOption("changes", &x.changes), flagOption("early", &x.early), flagOption("close", &x.close), numberOption("busy", &x.busy), numberOption("newFlows", &x.newFlows), numberOption("rates", &x.rates), numberOption("preface", &x.preface), numberOption("named", &x.named), flagOption("several", &x.several), numberOption("dscp", &x.dscp), numberOption("keeper", &x.real), numberOption("tos", &c.TOS), numberOption("onUnreachable", &c.OnUnreachable), numberOption("replies", &c.Replies),
		numberOption("amplification", &c.Amplification), flagOption("amplificationAlways", &c.AmplificationAlways), numberOption("routes", &x.routes),
	}
}

// parseGramSchedule is the opposite of [gramSchedule.String].
func parseGramSchedule(text string) (x gramSchedule, err error) {
	settings, steps, _ := strings.Cut(text, ":")
	if settings != "" {
		err = parseOptions(x.kind.options(), strings.Split(settings, ", "))
	}
	if err == nil {
		err = parseSteps(steps, gramNames[:], func(kind, a, b int) { x.steps = append(x.steps, gramStep{gramDo(kind), a, b}) })
	}
	return x, err
}

func (x *gramSchedule) report(seed uint64, at int, s *gramSimulation) string {
	x.steps = x.steps[:min(at+1, len(x.steps))]
	first := s.wrong
	if *simulateShrink {
		x.shrink(first)
		_, s = x.run()
	}
	return fmt.Sprintf("seed %d, step %d: %v\nwith the fewest steps: %v\n%v", seed, at, first, s.wrong, x)
}

// TestSimulateDatagrams is TestSimulate for flows of datagrams.
func TestSimulateDatagrams(t *testing.T) {
	if *simulateText != "" {
		x, err := parseGramSchedule(*simulateText)
		if err != nil {
			t.Fatal(err)
		}
		if at, s := x.run(); s.wrong != nil {
			t.Errorf("step %d: %v", at, s.wrong)
		}
		return
	}
	if *simulateSeed != 0 {
		x := drawGramSchedule(*simulateSeed)
		if at, s := x.run(); s.wrong != nil {
			t.Error(x.report(*simulateSeed, at, s))
		}
		return
	}
	if *simulateFor == 0 {
		n := gramSeedsEnough
		if testnet.RaceEnabled {
			n = 80
		}
		simulateGramSeeds(t, 1, n)
		return
	}
	first := rand.Uint64()
	t.Logf("seeds from %d on, for %v on %d CPUs", first, *simulateFor, runtime.GOMAXPROCS(0))
	simulateGramSeeds(t, first, math.MaxInt)
}

// simulateGramSeeds runs n schedules, or as many as there is time for, on all CPUs.
func simulateGramSeeds(t *testing.T, first uint64, n int) {
	var done, flows, deaths, upgrades, delivered, restored atomic.Int64
	var failed atomic.Bool
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // as in simulateSeeds
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(simMemory))
	var seenLock sync.Mutex
	var seen gramSeen
	seen.init(new(simSeen))
	began := time.Now()
	var all sync.WaitGroup
	var next atomic.Int64
	for range runtime.GOMAXPROCS(0) {
		all.Go(func() {
			for !failed.Load() && (*simulateFor == 0 || time.Since(began) < *simulateFor) {
				i := next.Add(1) - 1
				if i >= int64(n) {
					return
				}
				seed := first + uint64(i)
				x := drawGramSchedule(seed)
				at, s := x.run()
				if s.wrong != nil {
					failed.Store(true)
					t.Error(x.report(seed, at, s))
					return
				}
				done.Add(1)
				flows.Add(int64(len(s.flows)))
				deaths.Add(int64(s.deaths))
				upgrades.Add(int64(s.upgrades))
				delivered.Add(s.received)
				restored.Add(s.restoredAll)
				seenLock.Lock()
				seen.add(&s.seen)
				seenLock.Unlock()
			}
		})
	}
	all.Wait()
	d := time.Since(began).Seconds()
	t.Logf("%d schedules, %.0f/s; %d flows, %.0f/s; %d datagrams delivered; %d deaths, %d upgrades, %d flows restored", done.Load(), float64(done.Load())/d, flows.Load(), float64(flows.Load())/d, delivered.Load(),
		deaths.Load(), upgrades.Load(), restored.Load())
	if delivered.Load() == 0 || restored.Load() == 0 || upgrades.Load() == 0 {
		t.Error("the schedules do not say much")
	}
	t.Log(&seen)
	if n >= gramSeedsEnough && !failed.Load() {
		for _, what := range seen.missing() {
			t.Errorf("%s: it has not happened", what)
		}
	}
}

// TestSimulateDatagramsAgain runs schedules twice: one seed is one run.
func TestSimulateDatagramsAgain(t *testing.T) {
	for seed := uint64(1); seed <= 20; seed++ {
		var texts [2]string
		for i := range texts {
			x := drawGramSchedule(seed)
			_, s := x.run()
			texts[i] = fmt.Sprintln(s.wrong, s.deaths, s.upgrades, s.received, len(s.flows), s.world.Elapsed(), s.process.Calls(), s.peers.Calls())
		}
		if texts[0] != texts[1] {
			t.Fatalf("seed %d:\n%s\nand again:\n%s", seed, texts[0], texts[1])
		}
	}
}

// gramsThatFound are schedules that found something, with the fewest steps, and what that was.
var gramsThatFound = map[string]string{
	"network 1, phase 26419273188, sniff 200, early 1, busy 257, newFlows 200, rates 13, several 1, dscp 231, tos 1, onUnreachable 2, replies 2, amplification 4, amplificationAlways 1: {connect 0 0} {connect 0 0} {turn 923 601} {turn 651 294} {send 907 927} {send 1020 757} {send 108 677} {turn 100 412} {send 349 133} {turn 1021 735} {turn 1010 54} {clientGoes 474 260} {remove 178 844} {send 440 330} {turn 642 392} {answer 619 777} {turn 724 181} {turn 758 485} {fault 505 436} {send 253 969} {turn 460 566} {turn 404 966} {answer 913 969} {turn 202 593} {upgrade 135 262} {relisten 736 473} {send 264 901} {turn 191 1004}": "the oracle's: what a closing port had received was shown after what the flow's own socket had, which may be read first while peers send between two calls",
	"network 1, phase 53827670738, limit 39, sniff 1, changes 1, busy 663, preface 2, several 1, onUnreachable 2, replies 2, amplification 2: {connect 0 0} {connect 0 0} {upgrade 348 1008} {send 839 351} {relisten 447 950} {turn 205 266} {upgrade 34 471}":                                                                                                                                                                                                                                                                                                                                                                                    "a loop that was asked for a connection, and had it, asked Hooks.Choose twice about one datagram",
	"network 2, slow 1, phase 21416735623, joins 1, bufferMax 16166, after 2, changes 1, close 1, rates 577, preface 1, named 3, keeper 10468, routes 651: {connect 0 0} {connect 0 0} {settle 288 510} {turn 804 443} {upstreamRead 153 37} {answer 235 877} {upstreamComes 607 872} {upstreamRead 494 317} {turn 200 324} {kill 350 820} {kill 525 775} {send 440 18} {upstreamRead 410 914} {turn 107 1018} {settle 150 594} {deliver 119 521} {routeGoes 101 516} {answer 182 638} {deliver 913 285} {upstreamGoes 526 972} {send 288 871} {heal 402 169} {send 906 164} {turn 133 150} {send 603 795} {keeper 976 666} {upstreamRead 801 826} {turn 612 960} {fault 723 817} {connect 885 128} {turn 174 61} {routeGoes 16 15} {answer 1008 503} {sleep 69 605} {turn 891 239} {keeper 130 380} {upstreamRead 362 150} {routeComes 742 518} {answer 663 678} {send 447 604} {turn 920 978} {sleep 305 289} {turn 105 962} {keeper 698 1003} {heal 833 808} {connect 821 21} {routeGoes 726 103} {connect 965 188} {connect 161 831} {answer 826 173} {send 655 819} {keeper 855 948} {fault 509 812} {keeper 853 121} {lose 112 707} {answer 216 1007} {answer 348 707} {turn 460 377} {keeper 723 872} {send 834 490} {turn 495 327} {deliver 824 356} {turn 953 128}": "the oracle's: while calls fail, a run may be refused, and each of its datagrams has no route then, which asks for no other upstream",
	"network 2, phase 19494490029, bufferMax 8241, limit 36, changes 1, busy 611, named 1, keeper 2726, tos 1, replies 1, routes 393: {connect 0 0} {connect 0 0} {answer 567 971} {turn 865 246} {turn 959 341} {turn 284 636} {turn 409 477} {turn 750 58} {deliver 807 701} {turn 865 181} {turn 1002 640} {kill 737 694} {turn 3 517} {fault 983 570} {answer 178 950} {upstreamRead 211 304} {die 454 724} {keeper 887 280} {deliver 498 817} {turn 399 241} {upstreamComes 570 893} {connect 795 578} {upstreamRead 660 737} {send 678 636} {keeper 724 814} {turn 373 978} {upstreamRead 736 68} {turn 712 67} {standbyDies 886 781} {send 383 989} {kill 777 980} {holderFails 379 406} {upstreamRead 395 1003} {turn 686 296} {answer 357 593} {answer 8 743} {fault 847 59} {keeper 92 730} {send 856 384} {send 768 544} {turn 833 736} {keeper 796 558} {fault 569 656} {deliver 819 89} {turn 801 447} {upgrade 1 232} {answer 100 311} {send 259 53} {send 229 167} {routeGoes 496 738} {turn 957 350}":                                                                                                                                                                                                                                                        "the oracle's: while calls fail, a run may be refused, and each of its datagrams has no route then, which asks for no other upstream",
	"phase 12521651268, joins 1, after 2, early 1, rates 28, preface 1, keeper 11061, tos 1, onUnreachable 2: {connect 0 0} {connect 0 0} {upstreamGoes 650 191} {send 841 104} {connect 136 214} {relisten 806 697} {turn 563 670} {turn 943 993} {turn 29 877} {answer 114 377} {send 74 253} {turn 666 829} {upstreamRead 364 490} {turn 779 46} {answer 653 557} {send 803 435} {fault 686 395} {upstreamRead 303 845} {send 577 181} {turn 842 986} {turn 320 863} {send 928 580} {sleep 886 857} {turn 237 650} {heal 456 165} {heal 253 17} {fault 107 200} {sleep 1013 348} {turn 646 454} {answer 64 461} {deliver 528 462} {turn 894 954} {deliver 810 752} {turn 911 12} {send 416 367} {clientRead 550 784} {answer 539 39} {clientRead 730 942} {relisten 126 599} {answer 152 519} {turn 218 864} {turn 558 253} {answer 637 875} {send 851 390} {turn 468 374}":                                                                                                                                                                                                                                                                                                                                                                                               "the oracle's: the socket of a port that closed could not be read while calls failed, and the flow's own was read first",
	"noIPv6 1, phase 14317484163, after 1, loops 2, sniff 1, preface 1, several 1, tos 1: {connect 0 0} {connect 0 0} {send 257 585} {relisten 985 514} {turn 418 112} {kill 270 282} {send 543 994} {settle 917 610} {kill 866 598}":                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                "the flows of one address were restored at two sockets of a loop, each of which took what came for the other's connections",
	"slow 1, phase 51599067439, joins 1, bufferMax 18233, after 1, maxFlows 4, loops 3, sniff 1, changes 1, early 1, several 1, onUnreachable 2: {connect 0 0} {connect 0 0} {upstreamGoes 200 297} {die 969 692} {turn 514 882} {turn 619 1003} {turn 175 147} {turn 272 402} {send 481 576} {turn 183 107} {deliver 874 617} {shed 658 285} {upgrade 289 42} {connect 399 615} {connect 962 684} {send 731 386} {send 829 923} {deliver 957 278} {turn 587 162} {upgrade 723 591}":                                                                                                                                                                                                                                                                                                                                                                                                 "a datagram of a connection whose address had other connections at the socket that got it, or at the one that was asked first, began another flow, though another loop, or another socket of the same one, had its flow",
	"network 1, slow 1, phase 21784828262, after 2, noGRO 1, loops 3, sniff 125, early 1, busy 673, rates 823, several 1, dscp 1588, tos 2, onUnreachable 2: {connect 0 0} {connect 0 0} {send 697 205} {turn 762 229} {turn 947 526} {turn 610 304} {turn 236 613} {turn 767 45} {turn 945 742} {turn 155 497} {turn 981 79} {turn 825 835} {send 64 536} {turn 509 813} {connect 30 60} {relisten 409 661} {send 839 476} {turn 709 337} {settle 735 282} {send 35 29} {answer 728 629} {kill 800 898}":                                                                                                                                                                                                                                                                                                                                                                            "the same after a listener was replaced",
	"network 2, slow 1, phase 36279250591, joins 1, loops 3, sniff 1, changes 1, rates 410, several 1, dscp 1228, keeper 8271, onUnreachable 2, replies 2: {connect 0 0} {connect 0 0} {send 229 536} {clientGoes 636 1003} {send 936 510} {relisten 274 494} {turn 542 143} {turn 582 154} {deliver 912 84} {deliver 39 916} {connect 1015 895} {die 622 677} {turn 458 675} {turn 7 874} {connect 676 75} {deliver 599 278} {turn 232 926} {send 515 1012} {kill 449 89} {settle 50 838} {send 477 606} {upgrade 321 672}":                                                                                                                                                                                                                                                                                                                                                         "the same after a crash and an upgrade, with the keeper",
	"network 1, slow 1, phase 8929374957, bufferMax 10626, maxFlows 4, noGSO 1, loops 3, changes 1, busy 817, rates 873, preface 1, routes 233: {connect 0 0} {connect 0 0} {turn 664 707} {turn 512 37} {turn 192 178} {connect 153 171} {upgrade 71 945} {turn 533 487} {turn 783 589} {turn 603 122} {routeGoes 144 393} {kill 952 1013} {turn 674 993} {turn 353 53} {die 187 181} {turn 516 985} {turn 504 309} {turn 673 439} {relisten 513 325} {turn 862 977} {turn 358 166} {die 8 203} {turn 477 336} {deliver 468 584} {send 580 627} {turn 672 79} {send 195 197} {turn 718 206} {turn 543 563} {turn 76 127} {die 903 636} {turn 296 914} {turn 719 179} {turn 584 200} {turn 291 134} {send 665 695} {fault 298 949} {turn 349 715} {send 612 363} {routeComes 721 255} {turn 828 795} {turn 734 4} {die 864 441} {routeGoes 98 567} {deliver 943 452} {turn 912 412}": "the process died while a flow asked for a route with its own socket, and the flow had no record",
	"network 1, phase 50034433251, bufferMax 7847, limit 40, loops 3, sniff 1, changes 1, busy 739, rates 105, several 1, keeper 8511, tos 2, replies 1, routes 323: {connect 0 0} {connect 0 0} {turn 2 37} {send 223 277} {turn 208 693} {send 762 781} {turn 157 704} {connect 836 544} {relisten 994 1008} {turn 522 163} {turn 277 199} {turn 267 947} {routeGoes 112 843} {turn 590 266} {die 536 934} {send 245 351} {answer 824 611} {turn 630 554} {send 629 927} {keeper 411 1022} {turn 253 700} {remove 432 973}":                                                                                                                                                                                                                                                                                                                                                        "the oracle's: a flow without a route may end whose upstream was removed, as the hook has only the other one",
	"network 2, phase 3705011781, bufferMax 14198, after 2, loops 3, early 1, busy 600, rates 115, named 3, keeper 12427, tos 1, onUnreachable 2, replies 1: {connect 0 0} {relisten 104 229} {send 844 988} {turn 454 864} {turn 976 1022} {upgrade 1005 777}":                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                      "flow 0 ends with idle, which nothing explains: it has a bandwidth, and a hand-over waited for the keeper for a second since it had moved something",
	"network 1, slow 1, phase 53433655619, limit 49, early 1, rates 314, preface 2, keeper 598, tos 1, onUnreachable 2, routes 40: {connect 0 0} {connect 0 0} {turn 463 440} {connect 12 299} {send 367 456} {upstreamRead 199 254} {upstreamRead 809 443} {standbyDies 421 549} {deliver 419 991} {send 483 119} {turn 534 930} {deliver 515 905} {send 449 501} {upstreamRead 958 725} {send 124 271} {turn 908 710} {turn 577 211} {fault 856 195} {connect 352 67} {deliver 940 84} {filters 592 380} {turn 765 519} {keeper 480 395} {routeGoes 121 540} {deliver 728 937} {turn 913 496}":                                                                                                                                                                                                                                                                                     "3 datagrams were dropped as failed, which nothing explains: a blackhole, whose error is that of a send that failed, while calls failed",
	"network 1, phase 34874122336, after 2, noGRO 1, loops 2, sniff 241, early 1, close 1, named 3, keeper 2428, routes 261: {connect 0 0} {routeGoes 595 916} {send 225 771} {settle 969 536} {routeGoes 858 902} {send 215 322} {turn 589 988} {upgrade 991 168}":                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                  "a flow without a route had asked another member in vain, and the next process knew of fewer attempts",
	"network 1, phase 44319041219, early 1, busy 814, rates 410, preface 2, named 1, tos 2, routes 155: {connect 0 0} {connect 0 0} {turn 367 522} {turn 148 754} {routeGoes 342 907} {turn 64 344} {turn 822 843} {send 233 553} {connect 914 598} {relisten 334 756} {connect 1 491} {connect 582 783} {turn 396 435} {upgrade 321 667} {turn 481 288} {connect 54 49} {turn 233 158} {routeGoes 206 432} {fault 598 954} {send 497 730} {turn 575 881} {routeGoes 256 414} {turn 969 336}":                                                                                                                                                                                                                                                                                                                                                                                        "a flow without a route left its socket for a member that it has no route to either, because there was no descriptor to ask with",
	"network 1, slow 1, phase 43232284750, joins 1, after 1, loops 3, preface 1, named 2, keeper 1433, tos 1, onUnreachable 2, replies 1: {connect 0 0} {connect 0 0} {send 779 217} {send 712 513} {relisten 959 50} {turn 372 718} {deliver 65 54} {connect 1 574} {turn 229 979} {turn 298 933} {turn 986 944} {connect 888 775} {send 813 398} {connect 235 937} {send 810 281} {turn 659 88} {send 659 43} {turn 479 413} {deliver 508 931} {send 23 770} {connect 832 292} {send 206 415} {deliver 310 138} {fault 914 321} {send 743 754} {deliver 20 280} {turn 611 465} {send 80 428} {upgrade 414 894} {deliver 112 1022} {turn 489 22}":                                                                                                                                                                                                                                   "the oracle's: a flow moved something in a hand-over that waited a second for the keeper, and was taken for active until it was seen",
	"noIPv6 1, slow 1, phase 42844711712, after 2, loops 2, early 1, preface 2, keeper 16349, onUnreachable 2, replies 1: {connect 0 0} {relisten 803 1} {connect 147 740} {shed 435 522} {send 427 705} {deliver 145 880} {send 595 515}":                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                           "the oracle's: two datagrams of a new client were on their way from loop to loop, one in each direction, because the keeper had closed the old sockets between them",
	"network 1, phase 13072954015, joins 1, bufferMax 11591, after 1, loops 3, sniff 321, changes 1, early 1, preface 2, tos 2, onUnreachable 2: {connect 0 0} {send 905 396} {successor 221 1018} {send 534 258} {turn 463 141} {drain 278 834} {turn 263 0} {turn 716 832} {upgrade 439 476}":                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                      "the oracle's: a datagram that waits in one loop's queue when another process joins the address may arrive after those that came to another loop since",
	"phase 39764910712, after 2, loops 3, changes 1, busy 467, preface 1, tos 1, onUnreachable 2: {connect 0 0} {connect 0 0} {upgrade 614 41} {turn 198 343} {turn 841 655} {turn 891 200} {turn 340 732} {upgrade 437 884} {turn 492 167} {connect 581 54} {turn 57 130} {answer 319 19} {turn 460 854} {drain 982 135} {turn 1015 541} {turn 964 217} {connect 370 906} {turn 234 83} {send 834 641} {send 560 298} {turn 339 199} {drainEnds 147 720} {turn 814 436} {turn 331 569} {turn 1002 732} {turn 117 417} {send 949 223} {send 344 276} {turn 277 96} {upstreamGoes 503 658} {turn 671 661} {connect 164 1013} {turn 445 109} {turn 392 85} {upgrade 396 594} {turn 70 430} {turn 877 646} {turn 14 704} {turn 225 508} {drain 505 247} {turn 168 692} {turn 14 592}":                                                                                                   "the oracle's: the last datagrams of a port that has closed begin a flow, and who comes while that gets its socket may reach it, also on one loop",
	"network 1, slow 1, phase 22449547560, joins 1, loops 3, builtins 3, busy 933, tos 1, onUnreachable 1: {connect 0 0} {connect 0 0} {turn 986 21} {send 920 308} {send 733 143} {deliver 694 721} {successor 969 523} {settle 536 764} {turn 910 1020} {turn 335 829} {turn 153 229} {turn 170 916} {answer 943 934} {turn 997 77} {turn 592 561} {send 913 553} {connect 719 250} {turn 531 189} {turn 591 831} {turn 651 817} {settle 708 286} {send 10 940} {answer 174 70} {send 518 373} {turn 41 327} {turn 235 891} {send 881 664} {send 347 320} {connect 213 899} {send 152 994} {drain 218 853} {answer 326 703} {answer 467 540} {turn 149 181} {deliver 641 156} {turn 32 549} {turn 387 350} {upgrade 884 572} {die 514 412} {drain 408 468} {turn 1018 207} {sleep 838 972} {turn 413 699} {sleep 132 517} {upgrade 780 915}":                                       "the oracle's: what a loop does for who waits for a drain, outside of a turn, was taken for something that a process did in its last one",
	"network 1, slow 1, phase 52204548698, joins 1, after 2, loops 2, sniff 716, early 1, busy 1019, rates 676, preface 2, several 1, tos 2, onUnreachable 2: {connect 0 0} {connect 0 0} {send 819 691} {turn 951 132} {deliver 564 715} {turn 869 111} {connect 676 75} {turn 490 762} {fault 818 295} {turn 232 283} {upstreamGoes 974 62} {turn 144 961} {turn 152 283} {turn 760 855} {turn 901 305} {turn 196 844} {clientGoes 602 633} {connect 747 909} {turn 455 1016} {deliver 146 308} {connect 404 609} {turn 594 1001} {send 674 301} {turn 594 415} {turn 275 315} {turn 404 154} {send 502 997} {turn 170 111} {turn 315 463} {relisten 304 799} {turn 699 119} {turn 715 652} {upstreamRead 545 2} {turn 220 974} {turn 689 467} {turn 336 610} {settle 214 739} {turn 195 637} {turn 854 928} {turn 267 1006}":                                                      "the engine's: a client had two flows, because another one of its address, unknown when the sockets changed, had a flow on a loop that gets nothing from them any more; what was led there did not mark it",
	"network 2, slow 1, phase 53051597011, after 1, loops 2, early 1, rates 982, named 1, keeper 6089, onUnreachable 2, amplification 1, amplificationAlways 1: {connect 0 0} {connect 0 0} {send 121 646} {send 686 630} {holderFails 849 7} {turn 394 587} {turn 844 985} {turn 448 881} {turn 4 476} {turn 848 455} {send 950 1019} {clientRead 125 407} {upgrade 72 474} {turn 281 626} {send 73 923} {send 280 68} {turn 634 94} {relisten 870 357} {send 913 765} {turn 489 436} {turn 739 120} {turn 896 15} {send 828 783} {turn 916 234} {deliver 790 396} {turn 264 777}":                                                                                                                                                                                                                                                                                                  "a flow began when a listener had left its address and the keeper had its socket still: when that was closed, too, the client had a second flow",
	"slow 1, phase 44655101143, joins 1, noGSO 1, loops 3, changes 1, early 1, newFlows 104, named 3, keeper 5422: {connect 0 0} {connect 0 0} {upstreamGoes 343 358} {drainEnds 36 383} {drain 456 777} {upstreamComes 41 375} {upstreamRead 495 590} {answer 439 451} {upstreamComes 429 30} {send 932 516} {clientRead 158 1021} {turn 218 948} {answer 855 990} {upgrade 609 482} {fault 373 25} {upstreamComes 860 148} {send 223 704} {connect 215 904} {heal 817 920} {successor 236 227} {answer 131 36} {fault 844 36} {send 977 501} {send 1014 984} {keeper 680 806} {clientRead 349 573} {upstreamGoes 652 622} {turn 90 280} {upstreamGoes 13 234} {turn 1011 872} {upstreamRead 384 308} {deliver 518 706} {die 487 718} {upgrade 158 470} {turn 146 1} {deliver 494 959} {send 98 848} {send 883 178} {send 645 77} {sleep 719 132} {deliver 559 613} {fault 330 810} {answer 970 392} {deliver 85 726} {clientRead 708 1015} {deliver 251 813} {send 573 372} {answer 99 987} {upstreamRead 529 379} {fault 348 125} {die 152 763} {turn 884 82} {clientGoes 222 816} {send 836 587} {deliver 754 506} {upstreamRead 113 878} {deliver 518 304} {fault 885 0} {dieTwice 921 951} {turn 247 777} {answer 620 365} {send 400 488} {turn 690 765} {answer 231 622} {turn 129 182}": "the model of the keeper did not know that a key is held again, and that a process may die before it has told so",
	"network 2, slow 1, phase 29548768032, loops 2, named 3, replies 2, amplification 2, routes 46: {connect 0 0} {connect 0 0} {send 423 939} {relisten 794 845} {deliver 996 934} {turn 335 552} {send 524 974} {send 467 868} {send 110 779} {send 575 233} {send 277 986} {upgrade 639 314} {routeGoes 20 19} {deliver 816 145} {turn 580 1005} {remove 790 633}":                                                                                                                                                                                                                                                                                  "the oracle's: a flow without a route goes to the other upstream, whatever its hook likes, when its own was removed",
	"network 1, phase 24011825763, joins 1, limit 32, loops 3, early 1, busy 729, keeper 1630, tos 2, onUnreachable 2, amplification 2: {connect 0 0} {connect 0 0} {die 856 656} {turn 608 6} {connect 897 883} {send 258 668} {turn 40 563} {connect 413 587} {turn 743 442} {successor 1009 944} {connect 101 56} {turn 800 305} {send 952 286} {relisten 644 501} {turn 652 786} {send 244 510} {clientGoes 796 446} {answer 424 63} {settle 36 664} {send 661 973} {relisten 239 403}":                                                                                                                                                            "the oracle's: the socket that rests is that of the flow that was evicted",
	"network 1, slow 1, phase 6249263127, after 2, limit 39, noGRO 1, loops 2, sniff 1, several 1, tos 1, replies 1: {connect 0 0} {send 992 726} {deliver 96 648} {turn 621 432} {relisten 376 643} {turn 220 635} {settle 876 876} {upgrade 1005 142}":                                                                                                                                                                                                                                                                                                                                                                                               "the oracle's: where a client may have several flows, one of a listener that was removed and one of the listener at its address are both of the one listener that the next process has",
	"network 3, phase 50720101096, bufferMax 3787, after 1, sniff 814, changes 1, busy 916, onUnreachable 2, amplification 4: {connect 0 0} {connect 0 0} {turn 66 766} {send 75 642} {turn 640 109} {connect 396 435} {send 958 972} {connect 579 501} {turn 464 914} {send 922 269} {turn 505 347} {turn 801 963} {send 47 172} {send 773 780} {dieTwice 138 1016} {turn 121 636} {sleep 475 200} {turn 746 96} {turn 810 892} {turn 288 429} {send 64 173} {turn 397 773} {turn 755 412}":                                                                                                                                                           "a flow timed out, its end sent a reply that had waited in the port for another client, and the turn's end, which notes what flows have moved, had been before",
	"network 3, slow 1, phase 48273788467, joins 1, bufferMax 22981, after 1, loops 2, sniff 578, busy 360, tos 2, onUnreachable 2, replies 1: {connect 0 0} {connect 0 0} {turn 512 914} {turn 470 129} {turn 401 474} {turn 38 60} {settle 635 612} {turn 202 182} {turn 340 80} {answer 504 647} {send 859 8} {turn 949 808} {answer 213 395} {turn 884 950} {upgrade 442 958}":                                                                                                                                                                                                                                                                     "nothing: what a flow held was dropped at a hand-over, so that it had had all its replies, and the oracle did not wait for the next process to end it",
	"network 2, phase 57765121816, after 2, limit 47, noGRO 1, loops 3, early 1, newFlows 27, rates 337, named 2, tos 1, onUnreachable 2: {connect 0 0} {connect 0 0} {sleep 810 301} {send 819 888} {settle 141 631} {send 32 175} {relisten 996 888} {turn 964 934} {turn 25 160} {send 810 938} {sleep 712 689} {turn 23 452} {relisten 179 484} {dieTwice 67 841} {turn 805 796} {send 444 646} {turn 125 681} {holderFails 88 379} {upgrade 297 451}":                                                                                                                                                                                             "nothing: the oracle asked only in the last tick of a step whether as many flows had begun as may, and a step may be several turns",
	"phase 40894672079, early 1, busy 472, rates 272, named 3, tos 2, replies 1: {connect 0 0} {connect 0 0} {turn 543 869} {upgrade 591 278} {turn 472 458} {upstreamRead 910 420} {send 845 345} {answer 513 560} {turn 722 614} {upstreamGoes 650 242} {turn 131 505} {send 294 751} {turn 701 795} {turn 105 561} {send 814 617} {dieTwice 401 914} {answer 410 719} {turn 807 757} {connect 197 888} {turn 801 1019} {send 420 74} {turn 18 537} {send 401 329} {turn 843 101} {connect 73 153} {turn 176 796} {die 244 336} {send 630 1011} {turn 800 384} {upstreamRead 595 648} {turn 158 845} {answer 61 264} {connect 40 602} {send 527 66}": "a late reply, to what an earlier upstream was sent, counted as one to what the present one is sent",
	"network 3, slow 1, phase 14423180368, joins 1, after 2, builtins 3, changes 1, busy 899, newFlows 66, tos 2, onUnreachable 2, replies 1: {connect 0 0} {send 862 682} {turn 179 403} {upstreamRead 810 992} {upgrade 376 106} {answer 127 171} {die 689 756} {answer 424 278} {answer 832 724} {turn 396 736} {turn 341 554} {turn 896 961} {turn 200 636} {turn 977 69} {turn 480 813}":                                                                                                                                                                                                                                                          "a flow that had had all its replies went on until it was idle, if what it still held was dropped",
	"network 2, slow 1, phase 22717257077, bufferMax 13074, after 2, noGRO 1, loops 2, early 1, busy 559, preface 1, tos 2, onUnreachable 1: {connect 0 0} {connect 0 0} {turn 293 702} {upstreamGoes 834 257} {turn 835 81} {connect 55 81} {relisten 952 595} {turn 551 413} {turn 935 35} {turn 261 640} {deliver 527 385} {turn 451 567} {turn 295 603} {send 727 1015} {connect 881 634} {turn 162 686} {turn 149 552} {turn 313 1016} {turn 408 976} {deliver 86 724} {turn 260 983} {turn 842 425} {fault 538 357} {turn 163 704}":                                                                                                              "for want of a descriptor, a flow of a closing port got its own socket in the group of the port's, and the kernel gave clients of the listener beside it to other loops",
	"network 2, phase 20084201215, joins 1, maxFlows 2, limit 36, noGSO 1, early 1, close 1, preface 1, tos 1: {connect 410 789} {connect 418 464} {send 262 1005} {steer 859 337} {upstreamGoes 218 12} {turn 367 600}":                                                                                                                                                                                                                                                                                                                                                                                                                               "an upstream refused, while nothing could be held and more datagrams than fit were on their way: the first ones for the next upstream had no preface",
	"phase 32136115563, loops 2, sniff 45, changes 1, busy 957, tos 1, onUnreachable 2: {connect 0 0} {connect 0 0} {turn 247 926} {send 553 682} {turn 150 923} {turn 719 490} {connect 1018 806} {turn 197 788} {upstreamRead 420 847} {dieTwice 484 852} {turn 387 137} {answer 830 1017} {turn 643 181} {send 763 465} {connect 709 16} {turn 461 946} {answer 828 871} {drain 384 801} {answer 54 543} {send 495 201} {turn 56 815} {turn 665 1010}":                                                                                                                                                                                              "a new client reached the socket that a flow was just being given, while one loop had closed its port and another had not",
	"network 1, phase 48528082336, after 1, loops 3, early 1, rates 979, preface 2, named 1, tos 2: {connect 0 0} {connect 0 0} {send 612 581} {connect 911 668} {settle 819 834} {drain 3 863} {turn 176 562} {upgrade 23 190} {send 237 82}":                                                                                                                                                                                                                                                                                                                                                                                                         "of a listener that closed, the next process got the sockets of some loops only, and clients of the others' flows had a second flow",
	"network 2, slow 1, phase 27706891352, joins 1: {connect 567 619} {connect 336 91} {send 542 26} {upstreamGoes 329 921} {clientGoes 1006 878} {send 93 12} {connect 735 49} {send 509 973} {send 345 174} {settle 142 496} {upgrade 865 33}":                                                                                                                                                                                                                                                                                                                                                                                                       "sockets that flows had left for their next upstream were handed over under the key 0, all of them",
	"slow 1, phase 3639329889, limit 37, noGSO 1, noGRO 1, tos 1, onUnreachable 2, amplification 1: {connect 0 0} {connect 0 0} {send 877 620} {deliver 768 708} {turn 227 755} {sleep 1021 341} {send 770 676} {deliver 80 705} {turn 222 79} {die 963 1000} {send 91 442} {turn 413 517}":                                                                                                                                                                                                                                                                                                                                                            "a restored flow that had carried something last in the first 16 ms of the first process never timed out",
	"network 3, slow 1, phase 25185271533, joins 1, bufferMax 5287, after 1, tos 2, replies 1: {connect 540 585} {send 341 825} {turn 386 609} {upstreamRead 156 347} {die 38 97} {turn 550 537} {turn 68 746} {turn 386 481} {answer 778 900} {turn 337 650} {send 74 858} {turn 328 182} {upstreamRead 277 693} {relisten 973 438} {answer 534 230} {turn 911 869}":                                                                                                                                                                                                                                                                                  "a process that died while it closed a Unix listener left a socket that was shut down, and the next one listened on it",
	"phase 34137497102, joins 1, bufferMax 16889, after 1, tos 1: {connect 518 788} {send 887 563} {turn 766 241} {upstreamRead 342 735} {answer 807 723} {relisten 607 728} {turn 757 134} {send 972 174}":                                                                                                                                                                                                                                                                                                                                                                                                                                            "a flow whose client was verified while the port closed got no socket of its own, since it was neither among those that were nor among those that were not",
	"network 1, slow 1, phase 47431953621, after 1, loops 2, changes 1, tos 2, onUnreachable 2, replies 2: {connect 0 0} {upgrade 610 426} {relisten 11 409} {send 620 897} {settle 164 952} {send 792 53} {upgrade 936 286}":                                                                                                                                                                                                                                                                                                                                                                                                                          "clients of a listener whose address had another one before, with flows that had gone on, had a second flow on another loop in the next process",
	"slow 1, phase 38894662477, bufferMax 5025, loops 2, changes 1, tos 1, onUnreachable 2, replies 2: {connect 0 0} {connect 0 0} {send 408 51} {connect 662 243} {deliver 742 534} {clientGoes 466 543} {relisten 872 583} {turn 24 807} {connect 428 929} {send 1009 99} {turn 293 844} {turn 139 459} {send 640 53} {connect 920 13} {send 579 914} {deliver 109 646} {turn 190 550} {upgrade 159 531} {send 954 746}":                                                                                                                                                                                                                             "the last socket of a closing listener left with the process, and the records of the other's flows did not say that it had been there",
	"slow 1, phase 54333698470, joins 1, loops 2, sniff 475, onUnreachable 1, replies 2: {connect 0 0} {connect 0 0} {upstreamGoes 486 39} {send 746 4} {send 347 871} {settle 580 749} {connect 581 702} {relisten 702 290} {send 715 404} {deliver 320 95} {turn 787 82} {die 334 864} {send 395 1006} {turn 810 459} {turn 25 1001} {deliver 571 415} {turn 105 385} {turn 23 338}":                                                                                                                                                                                                                                                                 "a process died between the end of a listener's socket and the marks of flows whose datagrams may reach other loops from then on",
	"network 2, slow 1, phase 16685424297, joins 1, noGSO 1, loops 2, sniff 74, rates 727, replies 2: {connect 0 0} {connect 0 0} {send 948 98} {send 713 349} {send 770 889} {fault 94 722} {dieTwice 1014 171} {deliver 704 807} {turn 604 152} {send 885 956} {send 829 248} {connect 128 815} {deliver 260 818} {send 957 594} {turn 365 301} {deliver 411 1012} {relisten 1010 776} {turn 596 515}":                                                                                                                                                                                                                                               "a process that died while it made a listener beside one that closed left sockets of some loops only, and flows of the others were lost without a record",
	"builtins 1: {connect 0 0} {send 0 0} {turn 0 0} {upgrade 0 0}": "flow 0 has the path copy, \"single datagrams\" in direction 0: its upstream was built in, which the next process had to see from a datagram",
}

func TestGramsThatFound(t *testing.T) {
	for text, what := range gramsThatFound {
		x, err := parseGramSchedule(text)
		if err != nil || x.String() != text {
			t.Fatalf("%s is read as %s: %v", text, x, err)
		}
		if at, s := x.run(); s.wrong != nil {
			t.Errorf("this has found before: %s; step %d: %v\n%s", what, at, s.wrong, text)
		}
	}
}
