package flood

import (
	"math"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
)

// batchSize is how many messages a full batch has, and batchesMost and roundsFull how many batches a turn takes, as in package
// relay.
const batchSize, batchesMost, roundsFull = 64, 32, 4

// A floodSim is a loop in a time of its own: datagrams come into a queue, and the loop takes them out
// in batches, as package relay does. So what becomes of each does not depend on the machine.
type floodSim struct {
	a     Control
	now   time.Duration
	busy  time.Duration
	queue []simGram
	most  int // that wait at once
	rng   *rand.Rand

	begin, drop, carry time.Duration // what these take
	slow               int           // the loop gets one part in slow of the CPU
	other              time.Duration // what a turn's other work takes

	old, lost   int // datagrams of flows
	longest     time.Duration
	asked, let  map[string]int // new clients by sort, and those that began
	spent       time.Duration  // on new clients
	longestTurn time.Duration
	turns       int
}

type simGram struct {
	at   time.Duration
	from netip.Addr
	sort string // "": of a flow
}

func newFloodSim() *floodSim {
	s := &floodSim{most: 5000, rng: rand.New(rand.NewPCG(1, 2)), begin: 40 * time.Microsecond, drop: time.Microsecond, carry: 10 * time.Microsecond, slow: 1,
		asked: map[string]int{}, let: map[string]int{}}
	s.a = New(false)
	return s
}

// passes lets time pass for the loop, and counts it as busy.
func (s *floodSim) passes(d time.Duration) {
	d *= time.Duration(s.slow)
	s.now += d
	s.busy += d
}

func (s *floodSim) place(a netip.Addr) Place { return placeOfAddr(&s.a.networks, sys.IPv4, a) }

// simSource sends datagrams of a sort, so many per second.
type simSource struct {
	sort string
	rate int
	from func() netip.Addr
}

func v4(n uint32) netip.Addr {
	return netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)})
}

// run lets so much time pass.
func (s *floodSim) run(d time.Duration, sources ...simSource) {
	end := s.now + d
	next := make([]time.Duration, len(sources))
	soon := func(i int) time.Duration {
		return time.Duration(2 * s.rng.Float64() * float64(time.Second) / float64(sources[i].rate))
	}
	for i := range sources {
		next[i] = s.now + soon(i)
	}
	arrive := func() {
		for {
			first := 0
			for i := range sources {
				if next[i] < next[first] {
					first = i
				}
			}
			src, at := sources[first], next[first]
			if at > s.now {
				return
			}
			next[first] += soon(first)
			if src.sort == "" {
				s.old++
			} else {
				s.asked[src.sort]++
			}
			if len(s.queue) < s.most {
				s.queue = append(s.queue, simGram{at, src.from(), src.sort})
			} else if src.sort == "" {
				s.lost++
			}
		}
	}
	for s.now < end {
		arrive()
		if len(s.queue) == 0 && s.other == 0 {
			s.now += 50 * time.Microsecond
			continue
		}
		s.turn(arrive)
	}
}

// turn is one turn of the loop; see datagrams.receive of package relay.
func (s *floodSim) turn(arrive func()) {
	s.turns++
	start, now := s.now, s.now
	s.a.Fill(now, s.busy, true)
	spent := time.Duration(0)
	for rounds, work := 0, 0; rounds < batchesMost && work < roundsFull*batchSize && s.a.More(now, spent); rounds++ {
		arrive()
		n := min(len(s.queue), batchSize)
		batch := s.queue[:n]
		s.queue = s.queue[n:]
		s.a.Received(now, n == batchSize)
		for _, g := range batch {
			if g.sort == "" {
				s.passes(s.carry)
				s.longest = max(s.longest, s.now-g.at)
				work++
			}
		}
		meet := s.now
		for _, g := range batch {
			if g.sort == "" {
				continue
			}
			s.passes(s.drop)
			if s.a.TryBegin(s.place(g.from), now) {
				s.passes(s.begin)
				s.let[g.sort]++
				work++
			}
		}
		s.a.Took(s.now - meet)
		spent += s.now - meet
		if n < batchSize {
			break
		}
	}
	s.spent += spent
	s.passes(s.other)
	s.longestTurn = max(s.longestTurn, s.now-start)
}

// share is how many of a sort of new clients began, in percent.
func (s *floodSim) share(sort string) float64 {
	return 100 * float64(s.let[sort]) / float64(s.asked[sort])
}

// Sources of new clients. Old flows are in 10.1.0.0/16, which is known.
func simSources(s *floodSim, kind string, rate int) []simSource {
	random := map[string]func() netip.Addr{
		"all":  func() netip.Addr { return v4(s.rng.Uint32()>>1 | 1<<31) },
		"many": func() netip.Addr { return v4(100<<24 | s.rng.Uint32N(10_000)<<8 | s.rng.Uint32N(256)) },
		"one":  func() netip.Addr { return v4(100<<24 | s.rng.Uint32N(256)) },
	}[kind]
	quiet := uint32(0)
	return []simSource{
		{"", 2000, func() netip.Addr { return v4(10<<24 | 1<<16) }},
		{"flood", rate, random},
		{"known", 50, func() netip.Addr { return v4(10<<24 | 1<<16 | s.rng.Uint32N(50)<<8 | s.rng.Uint32N(250)) }},
		{"quiet", 50, func() netip.Addr { quiet++; return v4(10<<24 | 64<<16 + quiet<<8) }},
	}
}

func (s *floodSim) knowOld() {
	for i := range uint32(50) {
		s.a.networks.know(s.place(v4(10<<24|1<<16|i<<8)), s.now)
	}
}

// In a flood, no datagram of an old flow is lost or waits for long, and all new clients of known
// networks get in. Those of quiet ones do, too, unless the flood comes from networks as quiet.
func TestFloodLeavesTimeForFlows(t *testing.T) {
	for _, c := range []struct {
		kind  string
		rate  int
		quiet float64 // least share of new clients of quiet networks that begin, in percent
	}{{"one", 60_000, 90}, {"many", 60_000, 50}, {"all", 60_000, 1}, {"all", 120_000, 0}} {
		s := newFloodSim()
		src := simSources(s, c.kind, c.rate)
		s.run(100*time.Millisecond, src[0])
		s.knowOld()
		s.run(time.Second, src...)
		clear(s.asked)
		clear(s.let)
		atFirst := s.longest
		s.longest = 0
		s.run(4*time.Second, src...)
		if s.longest > time.Millisecond {
			t.Errorf("%s, %d/s: a datagram of an old flow waited for %v later in the flood", c.kind, c.rate, s.longest)
		}
		s.longest = max(s.longest, atFirst)
		t.Logf("%s, %d/s: %d of %d lost, longest wait %v; began: %.1f%% of the flood, %.1f%% of known, %.1f%% of quiet networks; %.0f%% of the time; cost %v",
			c.kind, c.rate, s.lost, s.old, s.longest, s.share("flood"), s.share("known"), s.share("quiet"), 100*s.spent.Seconds()/s.now.Seconds(), s.a.cost)
		if s.lost > 0 || s.longest > 25*time.Millisecond {
			t.Errorf("%s, %d/s: %d of %d datagrams of old flows lost, longest wait %v", c.kind, c.rate, s.lost, s.old, s.longest)
		}
		if s.share("known") < 95 {
			t.Errorf("%s, %d/s: %.1f%% of new clients of known networks began", c.kind, c.rate, s.share("known"))
		}
		if s.share("quiet") < c.quiet {
			t.Errorf("%s, %d/s: %.1f%% of new clients of quiet networks began, want %v%%", c.kind, c.rate, s.share("quiet"), c.quiet)
		}
		if s.share("flood") < 3 {
			t.Errorf("%s, %d/s: %.1f%% of the flood began, though there was time", c.kind, c.rate, s.share("flood"))
		}
	}
}

// A loop that gets little of the CPU protects its flows as well, and one that is busy with streams begins
// flows nevertheless.
func TestFloodOfABusyLoop(t *testing.T) {
	for _, c := range []struct {
		name  string
		slow  int
		other time.Duration
		begun float64 // least share of the flood
	}{{"a third of a CPU", 3, 0, 1}, {"streams", 1, 5 * time.Millisecond, 1}} {
		s := newFloodSim()
		s.slow, s.other = c.slow, c.other
		src := simSources(s, "all", 60_000)
		s.run(100*time.Millisecond, src[0])
		s.knowOld()
		s.run(2*time.Second, src...)
		t.Logf("%s: %d of %d lost, longest wait %v; began: %.1f%% of the flood, %.1f%% of known; %.0f%% of the time; longest turn %v",
			c.name, s.lost, s.old, s.longest, s.share("flood"), s.share("known"), 100*s.spent.Seconds()/s.now.Seconds(), s.longestTurn)
		if s.lost > 0 || s.longest > 100*time.Millisecond || s.share("known") < 95 || s.share("flood") < c.begun {
			t.Errorf("%s: %d of %d datagrams of old flows lost, longest wait %v; %.1f%% of the flood and %.1f%% of known networks began",
				c.name, s.lost, s.old, s.longest, s.share("flood"), s.share("known"))
		}
		if s.longestTurn > c.other+10*time.Millisecond*time.Duration(c.slow) {
			t.Errorf("%s: a turn took %v", c.name, s.longestTurn)
		}
	}
}

func TestHalvesOfTheBudget(t *testing.T) {
	a := New(false)
	a.rate = 1
	// What one half does not need is the other's.
	a.Budget = [2]time.Duration{Depth, -Depth}
	a.Fill(Depth, 0, true)
	if want := [2]time.Duration{Depth, 0}; a.Budget != want {
		t.Errorf("%v, want %v", a.Budget, want)
	}
}

// New flows get a part of the time that the loop's other work leaves, and a least part of all time if it leaves none.
func TestAdmissionRate(t *testing.T) {
	for _, c := range []struct {
		other   float64
		protect bool
		want    float64
	}{
		{0, true, shareProtecting}, {0, false, shareAlone},
		{0.5, true, shareProtecting / 2}, {0.5, false, shareAlone / 2},
		{1, true, shareLeast}, {1, false, shareLeast},
	} {
		a := New(false)
		for n := range time.Duration(100) { // until the average has settled
			now := (n + 1) * measureWindow
			a.Fill(now, time.Duration(c.other*float64(now)), c.protect)
		}
		if math.Abs(a.rate-c.want) > 1e-6 {
			t.Errorf("beside work for %v of the time, flows to protect %v: %v, want %v", c.other, c.protect, a.rate, c.want)
		}
	}
}

// Flows that begin leave a debt that is soon filled up, however many they are and however long they take; and one
// during which the process stood still takes eight times the usual.
func TestAdmissionDebt(t *testing.T) {
	a := New(false)
	c := placeOf(&a.networks, "192.0.2.1")
	want := func(budget time.Duration) {
		t.Helper()
		if a.Budget[0] != budget || a.Budget[1] != Depth {
			t.Errorf("left: %v, want %v and %v", a.Budget, budget, Depth)
		}
	}
	a.TryBegin(c, 0)
	a.Took(time.Hour)
	want(Depth - 8*firstCost)
	if a.cost <= firstCost || a.cost > 2*firstCost {
		t.Errorf("the cost is %v, was %v", a.cost, firstCost)
	}
	for range 1000 { // nothing waits
		if !a.TryBegin(c, 0) {
			t.Fatal("a client is refused")
		}
	}
	want(-Depth)
	a.Took(time.Hour)
	want(-Depth)
}

// A refusal tells of a flood for some time.
func TestAdmissionPressed(t *testing.T) {
	a := New(false)
	if a.Pressed(0) {
		t.Error("it is pressed from the start")
	}
	a.Crowded, a.Budget = 1, [2]time.Duration{}
	if a.TryBegin(placeOf(&a.networks, "192.0.2.1"), 0) {
		t.Fatal("a client is let in without time")
	}
	for now, want := range map[time.Duration]bool{0: true, calmTime: true, calmTime + 1: false} { // refused is 1 at least
		if got := a.Pressed(now); got != want {
			t.Errorf("%v after the refusal it is pressed: %v", now, got)
		}
	}
}

// While no datagrams wait, nobody is refused, however many flows a network begins; and those that begin
// many at once have room.
func TestCalmRefusesNobody(t *testing.T) {
	s := newFloodSim()
	one := netip.MustParseAddr("192.0.2.1")
	from := func() netip.Addr { return one }
	s.run(3*time.Second, simSource{"", 1000, func() netip.Addr { return v4(1) }}, simSource{"steady", 15_000, from})
	for range 300 {
		s.asked["burst"]++
		s.queue = append(s.queue, simGram{s.now, one, "burst"})
	}
	s.run(100*time.Millisecond, simSource{"single", 100, func() netip.Addr { return v4(7) }})
	if s.let["steady"] < s.asked["steady"]-10 || s.let["burst"] != 300 || s.let["single"] < s.asked["single"]-1 || s.a.Pressed(s.now) {
		t.Errorf("asked %v, began %v", s.asked, s.let)
	}
}

// A process that gets next to nothing of the CPU finds full batches for a long time when many clients come at
// once. That is no flood: all of them get in.
func TestSlowProcessRefusesNobody(t *testing.T) {
	s := newFloodSim()
	s.slow = 100
	for i := range uint32(7 * batchSize) {
		s.asked["burst"]++
		s.queue = append(s.queue, simGram{s.now, v4(10<<24 | i), "burst"})
	}
	s.run(10*time.Second, simSource{"single", 10, func() netip.Addr { return v4(7) }})
	if s.let["burst"] != s.asked["burst"] || s.a.Pressed(s.now) {
		t.Errorf("asked %v, began %v", s.asked, s.let)
	}
}

// New clients are no longer refused a second after there is time for all of them again.
func TestFloodThatWanes(t *testing.T) {
	s := newFloodSim()
	src := simSources(s, "all", 60_000)
	s.run(100*time.Millisecond, src[0])
	s.knowOld()
	s.run(2*time.Second, src...)
	src = simSources(s, "all", 20_000)
	s.run(crowdedTime+4*measureWindow, src...)
	clear(s.asked)
	clear(s.let)
	s.run(time.Second, src...)
	if s.let["flood"] < s.asked["flood"]-10 || s.let["quiet"] < s.asked["quiet"]-1 {
		t.Errorf("asked %v, began %v", s.asked, s.let)
	}
}

// All networks that ask for more than there is get about the same; one that asks for less gets what it
// asks for.
func TestNetworksShareAlike(t *testing.T) {
	s := newFloodSim()
	src := []simSource{{"modest", 20, func() netip.Addr { return v4(1<<24 | 250<<8) }}}
	for i, rate := range []int{10_000, 15_000, 20_000} {
		net := uint32(2<<24 + i<<8)
		src = append(src, simSource{[]string{"a", "b", "c"}[i], rate, func() netip.Addr { return v4(net + s.rng.Uint32N(256)) }})
	}
	s.run(3*time.Second, src...)
	a, b, c := s.let["a"], s.let["b"], s.let["c"]
	if s.let["modest"] < s.asked["modest"]*9/10 || min(a, b, c)*4 < max(a, b, c) {
		t.Errorf("asked %v, began %v", s.asked, s.let)
	}
}

// With no bound on new flows, nobody is refused.
func TestAdmissionOff(t *testing.T) {
	s := newFloodSim()
	s.a = New(true)
	s.run(time.Second, simSource{"flood", 60_000, func() netip.Addr { return v4(s.rng.Uint32()) }})
	if n := s.asked["flood"] - s.let["flood"] - len(s.queue); s.let["flood"] < 20_000 || s.a.Pressed(s.now) || n > s.asked["flood"]*2/3 {
		t.Errorf("%d of %d began", s.let["flood"], s.asked["flood"])
	}
}
