package upstream

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
)

func TestMain(m *testing.M) { testnet.Main(m) }

const longEnough = testwait.Patience

// loopback is an address that other tests do not listen on: what has closed a
// port here finds it closed.
const loopback = "127.83.0.1"

// members makes n static members, the first of the given weights.
func members(n int, weights ...int) (ms []spec.Member) {
	for i := range n {
		w := 1
		if i < len(weights) {
			w = weights[i]
		}
		ms = append(ms, spec.Member{
			Name: fmt.Sprint("m", i), Weight: w,
			To: spec.Endpoint{Kind: spec.TCP, Host: fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255), Port: 80},
		})
	}
	return ms
}

// set makes a Set with one group, g, that ends with the test.
func set(t testing.TB, cfg *spec.Group, opt Options) (*Set, *Group) {
	t.Helper()
	cfg.Name = "g"
	s := NewSet(opt)
	t.Cleanup(s.Close)
	s.Apply([]*spec.Group{cfg})
	return s, s.Group("g")
}

var nobody netip.AddrPort

// pick makes n flows, which end at once if hold is false, and counts by index.
func pick(t testing.TB, g *Group, n int, hold bool, client func(i int) netip.AddrPort) []int {
	t.Helper()
	index := make(map[*Member]int)
	for i, m := range g.members {
		index[m] = i
	}
	counts := make([]int, len(g.members))
	for i := range n {
		l, c := new(Lease), nobody
		if client != nil {
			c = client(i)
		}
		m, why := g.Pick(l, Client{Addr: c, Local: nobody})
		if m == nil {
			t.Fatalf("flow %d: %v", i, why)
		}
		counts[index[m]]++
		if !hold {
			l.Release()
		}
	}
	return counts
}

func names(t testing.TB, g *Group, l *Lease, n int) (s []string) {
	t.Helper()
	for range n {
		if m, why := g.Pick(l, Client{Addr: nobody, Local: nobody}); m != nil {
			s = append(s, m.Name())
		} else {
			s = append(s, why.String())
		}
	}
	return s
}

func TestInTurn(t *testing.T) {
	_, g := set(t, &spec.Group{Balance: "round-robin", Members: members(3), Retries: 9}, Options{})
	for flow := range 7 {
		var l Lease
		got := names(t, g, &l, 4)
		want := []string{fmt.Sprint("m", flow%3), fmt.Sprint("m", (flow+1)%3), fmt.Sprint("m", (flow+2)%3), "connect-failed"}
		if !slices.Equal(got, want) {
			t.Errorf("flow %d: %v, want %v", flow, got, want)
		}
		l.Release()
	}
	for _, m := range g.members {
		if m.Active() != 0 {
			t.Errorf("%s has %d flows", m.Name(), m.Active())
		}
	}
}

func TestRetryBounds(t *testing.T) {
	cfg := &spec.Group{Balance: "first", Members: members(5), Retries: 2}
	_, g := set(t, cfg, Options{})
	var l Lease
	if got, want := names(t, g, &l, 4), []string{"m0", "m1", "m2", "retries"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	l.Release()

	cfg = &spec.Group{Balance: "first", Members: members(5), Retries: 4, Timeouts: spec.GroupTimeouts{Retries: 3 * time.Second}}
	_, g = set(t, cfg, Options{})
	for i := range 4 {
		m, why := g.Pick(&l, Client{Addr: nobody, Local: nobody})
		if wants := i < 3; wants != (m != nil) || !wants && why != spec.ReasonRetries {
			t.Errorf("attempt %d after %v: %v, %v", i, l.givenUp().took, m, why)
		}
		l.Connected(errors.New("refused"), time.Second)
	}
	l.Release()

	// Where nothing is retried no budget of retries is used up.
	for _, cfg := range []*spec.Group{{Balance: "first", Members: members(1), Retries: 2}, {Balance: "first", Members: members(5)}} {
		_, g = set(t, cfg, Options{})
		if got, want := names(t, g, &l, 2), []string{"m0", "connect-failed"}; !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
		l.Release()
	}
}

func TestBackups(t *testing.T) {
	cfg := &spec.Group{Balance: "round-robin", Members: members(4), Retries: 9}
	cfg.Members[2].Backup, cfg.Members[3].Backup = true, true
	s, g := set(t, cfg, Options{})
	if got := pick(t, g, 100, false, nil); !slices.Equal(got, []int{50, 50, 0, 0}) {
		t.Error(got)
	}
	var l Lease
	got := names(t, g, &l, 4)
	slices.Sort(got[:2])
	slices.Sort(got[2:])
	if want := []string{"m0", "m1", "m2", "m3"}; !slices.Equal(got, want) {
		t.Errorf("after failures: %v", got)
	}
	l.Release()
	for _, m := range []string{"m0", "m1"} {
		if err := s.SetMode("g", m, Drain); err != nil {
			t.Fatal(err)
		}
	}
	if got := pick(t, g, 100, false, nil); !slices.Equal(got, []int{0, 0, 50, 50}) {
		t.Errorf("with all primaries drained: %v", got)
	}
	for _, m := range []string{"m2", "tcp://10.0.0.3:80"} {
		if err := s.SetMode("g", m, Disable); err != nil {
			t.Fatal(err)
		}
	}
	if m, why := g.Pick(&l, Client{Addr: nobody, Local: nobody}); m != nil || why != spec.ReasonNoMember {
		t.Errorf("with nobody left: %v, %v", m, why)
	}
	l.Release()
}

// flow is a Resumer that notes it.
type flow struct {
	Lease
	resumed int
}

func (f *flow) Resume() { f.resumed++ }

func TestQueue(t *testing.T) {
	for _, balance := range balancerNames() {
		t.Run(balance, func(t *testing.T) {
			cfg := &spec.Group{Balance: balance, Members: members(2), Queue: spec.Queue{Size: 3}}
			cfg.Members[0].MaxFlows, cfg.Members[1].MaxFlows = 1, 1
			_, g := set(t, cfg, Options{})
			flows := make([]flow, 6)
			for i := range flows {
				f := &flows[i]
				m, why := g.Pick(&f.Lease, Client{Addr: nobody, Local: nobody})
				if i < 2 {
					if m == nil {
						t.Fatalf("flow %d: %v", i, why)
					}
					continue
				}
				if i == 5 {
					if m != nil || why != spec.ReasonQueueFull {
						t.Errorf("flow %d: %v, %v", i, m, why)
					}
					break
				}
				if m != nil || why != spec.ReasonNone {
					t.Fatalf("flow %d: %v, %v", i, m, why)
				}
				if m, why = g.Wait(&f.Lease, f); m != nil || why != spec.ReasonNone {
					t.Fatalf("flow %d does not wait: %v, %v", i, m, why)
				}
			}
			resumed := func(want ...int) {
				t.Helper()
				for i := range flows {
					if flows[i].resumed != want[i] {
						t.Fatalf("flow %d is resumed %d times, want %d", i, flows[i].resumed, want[i])
					}
				}
			}
			resumed(0, 0, 0, 0, 0, 0)
			freed := flows[1].Member()
			flows[1].Release()
			resumed(0, 0, 1, 0, 0, 0)
			if m, why := g.Pick(&flows[2].Lease, Client{Addr: nobody, Local: nobody}); m != freed {
				t.Errorf("resumed onto %v, %v", m, why)
			}
			flows[3].Release() // leaves
			flows[0].Release()
			resumed(0, 0, 1, 0, 1, 0)
			// The flow vanishes while a slot is reserved for it.
			flows[4].Release()
			if m, why := g.Pick(&flows[5].Lease, Client{Addr: nobody, Local: nobody}); m == nil {
				t.Errorf("the slot is gone: %v", why)
			}
			for i := range flows {
				flows[i].Release()
			}
			for _, m := range g.members {
				if m.Active() != 0 {
					t.Errorf("%s has %d flows", m.Name(), m.Active())
				}
			}
			if g.queue.len() != 0 {
				t.Errorf("%d wait", g.queue.len())
			}
		})
	}
}

func TestFullWithoutQueue(t *testing.T) {
	cfg := &spec.Group{Balance: "random", Members: members(1)}
	cfg.Members[0].MaxFlows = 1
	_, g := set(t, cfg, Options{})
	var a, b Lease
	g.Pick(&a, Client{Addr: nobody, Local: nobody})
	if m, why := g.Pick(&b, Client{Addr: nobody, Local: nobody}); m != nil || why != spec.ReasonQueueFull {
		t.Errorf("%v, %v", m, why)
	}
	a.Release()
	b.Release()
}

// A lease allocates nothing until its flow gives a member up, and then once: most of the flows that are open
// never did.
func TestPickAllocatesNothing(t *testing.T) {
	for _, balance := range balancerNames() {
		_, g := set(t, &spec.Group{Balance: balance, Members: members(50), Retries: 3}, Options{})
		client := netip.MustParseAddrPort("192.0.2.1:1000")
		var l Lease
		for retries := range 2 {
			if n := testing.AllocsPerRun(1000, func() {
				for range 1 + retries {
					g.Pick(&l, Client{Addr: client, Local: client})
					l.Connected(nil, time.Millisecond)
				}
				l.Release()
			}); n != float64(retries) {
				t.Errorf("%s: %v allocations a flow that is connected %d times", balance, n, 1+retries)
			}
		}
	}
}
