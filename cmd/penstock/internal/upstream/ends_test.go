package upstream

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

var closing = spec.LiveFlows{What: "close"}

// ended returns the members whose flows end, each with the reason or cause and the seconds since then.
func ended(g *Group) (list []string) {
	for _, m := range g.members {
		if e, said := m.End(); e != nil {
			why := e.Cause.String()
			if e.Reason != spec.ReasonNone {
				why = e.Reason.String()
			}
			list = append(list, fmt.Sprint(m.name, " ", why, " ", said.What, " ", int(time.Since(e.Since).Seconds())))
		}
	}
	return list
}

func wantEnds(t *testing.T, what string, g *Group, want ...string) {
	t.Helper()
	synctest.Wait()
	if got := ended(g); !slices.Equal(got, want) {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// kept is what FlowsKept has said.
type kept struct {
	mu   sync.Mutex
	said []string
}

func (k *kept) tell(group, member string, failed, all int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.said = append(k.said, fmt.Sprintf("%d of %d", failed, all))
}

func (k *kept) take() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := strings.Join(k.said, ", ")
	k.said = nil
	return s
}

// checkedGroup returns a group of four members, the last of which is a backup, of which as many are up as w says.
func checkedGroup(w *ward, down, up spec.LiveFlows) *spec.Group {
	cfg := &spec.Group{Name: "g", Balance: "round-robin", Members: members(4), Down: down, Up: up,
		Check: &spec.Check{Kind: "tcp", Every: time.Second, Timeout: time.Second, Rise: 1, Fall: 2}}
	cfg.Members[3].Backup = true
	for i := range cfg.Members {
		w.set(cfg.Members[i].To.String(), false)
	}
	return cfg
}

// Flows end while the check of their member fails, whether or not it is drained, and not after it is up again, or disabled.
func TestFlowsOfMemberThatGoesDownEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w ward
		var k kept
		var looked []string
		cfg := checkedGroup(&w, closing, closing)
		s, g := set(t, cfg, Options{probe: w.probe, FlowsKept: k.tell, FlowsEnd: func(m *Member) { looked = append(looked, m.name) }})
		m0, m1 := cfg.Members[0].To.String(), cfg.Members[1].To.String()
		time.Sleep(5 * time.Second)
		wantEnds(t, "all are up", g)
		w.set(m0, true)
		time.Sleep(3 * time.Second)
		if got := ended(g); len(got) != 1 || !strings.HasPrefix(got[0], "m0 check-failed close ") {
			t.Errorf("one is down: %q", got)
		}
		w.set(m0, false)
		time.Sleep(3 * time.Second)
		wantEnds(t, "it is up again", g)
		s.SetMode("g", "m1", Drain)
		time.Sleep(20 * time.Second)
		wantEnds(t, "another one is drained", g)
		w.set(m1, true)
		time.Sleep(3 * time.Second)
		if got := ended(g); len(got) != 1 || !strings.HasPrefix(got[0], "m1 check-failed close ") {
			t.Errorf("the drained one is down: %q", got)
		}
		s.SetMode("g", "m1", Disable)
		wantEnds(t, "it is disabled", g)
		if said := k.take(); said != "" || !slices.Equal(looked, []string{"m0", "m1"}) {
			t.Errorf("kept %q, looked for %q", said, looked)
		}
	})
}

// When most members go down at once, flows of those that are not found first go on until the end, and that is said once; when they go down one
// after the other they end.
func TestFlowsOfMostMembersAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w ward
		var k kept
		cfg := checkedGroup(&w, closing, spec.LiveFlows{})
		s, g := set(t, cfg, Options{probe: w.probe, FlowsKept: k.tell})
		time.Sleep(5 * time.Second)
		pick(t, g, 9, true, nil)
		for i := range cfg.Members {
			w.set(cfg.Members[i].To.String(), true)
		}
		time.Sleep(5 * time.Second)
		if got := ended(g); len(got) != 2 {
			t.Errorf("all are down: %q", got)
		}
		if said := k.take(); said != "3 of 4" && said != "4 of 4" { // the backup, which has no flows, may be the third
			t.Errorf("said %q", said)
		}
		flows := 0 // of members that have failed, and have no End
		for _, m := range g.members {
			if end, _ := m.End(); end == nil {
				flows += m.Active()
			}
		}
		if n := s.Snapshot()[0].DownKept; n != uint64(flows) || n < 3 {
			t.Errorf("%d flows are counted, of %d", n, flows)
		}
		time.Sleep(time.Hour)
		if got := ended(g); len(got) != 2 {
			t.Errorf("an hour later: %q", got)
		}
		for i := range cfg.Members {
			w.set(cfg.Members[i].To.String(), false)
		}
		time.Sleep(5 * time.Second)
		wantEnds(t, "all are up again", g)
		for i := range cfg.Members {
			time.Sleep(15 * time.Second)
			w.set(cfg.Members[i].To.String(), true)
		}
		time.Sleep(5 * time.Second)
		if got := ended(g); len(got) != 4 || k.take() != "" || s.Snapshot()[0].DownKept != uint64(flows) {
			t.Errorf("one after the other: %q, %+v", got, s.Snapshot()[0])
		}
	})
}

// Members of which one at a time is a primary fail over twice within the time in which a broken check takes down all: flows of both primaries end,
// because the second one passed a check when those of the first failed already, although that one was not down yet. So they do if the process is
// replaced in between.
func TestFlowsOfSecondFailoverEnd(t *testing.T) {
	for _, replaced := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var w ward
			var k kept
			cfg := checkedGroup(&w, closing, spec.LiveFlows{})
			cfg.Members, cfg.Check.Fall = members(3), 3
			m0, m1, m2 := cfg.Members[0].To.String(), cfg.Members[1].To.String(), cfg.Members[2].To.String()
			w.set(m1, true)
			w.set(m2, true)
			s, g := set(t, cfg, Options{probe: w.probe, FlowsKept: k.tell})
			time.Sleep(time.Minute)
			pick(t, g, 3, true, nil)
			w.set(m0, true)
			w.set(m1, false)
			time.Sleep(2 * time.Second) // m0 has failed twice, m1 has passed twice
			synctest.Wait()
			if m := s.Snapshot()[0].Members; m[0].State != Up || m[1].State != Up {
				t.Fatalf("m0 is %v, m1 is %v", m[0].State, m[1].State)
			}
			if replaced {
				saved := throughJSON(t, s.Save())
				s.Close()
				_, g = set(t, cfg, Options{probe: w.probe, FlowsKept: k.tell, Saved: saved})
			}
			pick(t, g, 3, true, nil)
			w.set(m1, true)
			w.set(m2, false)
			time.Sleep(4 * time.Second)
			if got := ended(g); len(got) != 2 || !strings.HasPrefix(got[0], "m0 check-failed close ") || !strings.HasPrefix(got[1], "m1 check-failed close ") || k.take() != "" {
				t.Errorf("m2 is primary, replaced: %t: %q", replaced, got)
			}
		})
	}
}

// Members that are drained count neither as failed nor as members; that flows go on is said once.
func TestDrainedMembersAreNotMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w ward
		var k kept
		cfg := checkedGroup(&w, closing, spec.LiveFlows{})
		cfg.Members = members(8)
		s, g := set(t, cfg, Options{probe: w.probe, FlowsKept: k.tell})
		time.Sleep(5 * time.Second)
		pick(t, g, 16, true, nil)
		for i := range 5 {
			if i < 4 {
				s.SetMode("g", cfg.Members[i].Name, Drain)
			}
			w.set(cfg.Members[i].To.String(), true)
		}
		time.Sleep(5 * time.Second)
		if got := ended(g); len(got) != 5 || k.take() != "" {
			t.Errorf("four are drained, and with one of the others down: %q", got)
		}
		for i := range cfg.Members {
			w.set(cfg.Members[i].To.String(), true)
		}
		time.Sleep(5 * time.Second)
		if got, said := ended(g), k.take(); len(got) != 7 || said != "3 of 4" { // m4 was down while the others were well
			t.Errorf("all are down: %q; said %q", got, said)
		}
	})
}

// The only member keeps its flows, and so does each member of a group that panics.
func TestFlowsAreKeptInPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w ward
		cfg := checkedGroup(&w, closing, spec.LiveFlows{})
		cfg.Panic, cfg.Members = 0.7, cfg.Members[:3]
		_, g := set(t, cfg, Options{probe: w.probe})
		time.Sleep(5 * time.Second)
		w.set(cfg.Members[0].To.String(), true)
		time.Sleep(5 * time.Second)
		wantEnds(t, "in a panic", g)

		alone := checkedGroup(&w, closing, spec.LiveFlows{})
		alone.Members = alone.Members[:1]
		_, g = set(t, alone, Options{probe: w.probe})
		time.Sleep(5 * time.Second)
		w.set(alone.Members[0].To.String(), true)
		time.Sleep(5 * time.Second)
		wantEnds(t, "the only member", g)
	})
}

// A panic that begins later keeps what has not ended yet.
func TestPanicKeepsFlowsThatHaveNotEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w ward
		cfg := checkedGroup(&w, closing, spec.LiveFlows{})
		cfg.Panic, cfg.Members = 0.5, cfg.Members[:3]
		_, g := set(t, cfg, Options{probe: w.probe})
		time.Sleep(5 * time.Second)
		w.set(cfg.Members[0].To.String(), true)
		time.Sleep(20 * time.Second)
		if got := ended(g); len(got) != 1 {
			t.Errorf("one of three: %q", got)
		}
		w.set(cfg.Members[1].To.String(), true)
		time.Sleep(5 * time.Second)
		wantEnds(t, "in a panic", g)
	})
}

// Ejection and what a registry says are occasions, too, each with its cause; a member of a reload that says keep keeps its flows.
func TestFlowsOfEjectedMembersEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := &spec.Group{Name: "g", Balance: "round-robin", Members: members(3), Down: closing, Eject: &spec.Eject{Failures: 1, For: time.Minute, Max: time.Minute, Share: 0.5}}
		s, g := set(t, cfg, Options{})
		g.members[1].failed(fmt.Errorf("refused"))
		wantEnds(t, "ejected", g, "m1 ejected close 0")
		keep := *cfg
		keep.Down = spec.LiveFlows{What: "keep"}
		s.Apply([]*spec.Group{&keep})
		wantEnds(t, "after a reload that says keep", g)
		s.Apply([]*spec.Group{cfg})
		time.Sleep(30 * time.Second)
		wantEnds(t, "and one that says close", g, "m1 ejected close 30")
		gone := g.members[1]
		s.RemoveMember("g", "m1")
		if end, _ := gone.End(); end == nil {
			t.Error("flows of a member that is ejected, and then removed, go on")
		}
		m := cfg.Members[1]
		time.Sleep(45 * time.Second)
		wantEnds(t, "removed", g)
		s.AddMember("g", m)
		wantEnds(t, "added again", g)
	})
}

// Flows of backups end when a primary is up again after none was, and go on when it goes down again; not when a second one comes up,
// nor at the start.
func TestFlowsOfBackupsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w ward
		cfg := checkedGroup(&w, spec.LiveFlows{}, closing)
		s, g := set(t, cfg, Options{probe: w.probe})
		primaries := func(up bool) {
			for i := range 3 {
				w.set(cfg.Members[i].To.String(), !up)
			}
			time.Sleep(5 * time.Second)
		}
		time.Sleep(5 * time.Second)
		wantEnds(t, "at the start", g)
		w.set(cfg.Members[0].To.String(), true)
		time.Sleep(5 * time.Second)
		w.set(cfg.Members[0].To.String(), false)
		time.Sleep(5 * time.Second)
		wantEnds(t, "one primary was away", g)
		primaries(false)
		wantEnds(t, "all primaries are away", g)
		s.AddMember("g", spec.Member{Name: "new", Weight: 1, To: spec.Endpoint{Kind: spec.TCP, Host: "10.9.9.9", Port: 80}})
		wantEnds(t, "one is new, and not checked yet", g)
		s.RemoveMember("g", "new")
		w.set(cfg.Members[0].To.String(), false)
		time.Sleep(5 * time.Second)
		if got := ended(g); len(got) != 1 || !strings.HasPrefix(got[0], "m3 failback close ") {
			t.Errorf("one is back: %q", got)
		}
		since := g.failback
		primaries(true)
		if g.failback != since {
			t.Error("a second one is another occasion")
		}
		primaries(false)
		wantEnds(t, "all primaries are away again", g)
	})
}

// When flows of backups end, those whose clients come again at once find the primary: on a backup they would be younger than the occasion, and stay.
func TestFlowsThatEndFindPrimary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w ward
		cfg := checkedGroup(&w, spec.LiveFlows{}, closing)
		var g *Group
		var at []int
		_, g = set(t, cfg, Options{probe: w.probe, FlowsEnd: func(m *Member) { at = append(at, pick(t, g, 3, false, nil)...) }})
		for round := range 2 {
			for i := range 3 {
				w.set(cfg.Members[i].To.String(), true)
			}
			time.Sleep(5 * time.Second)
			began := time.Now()
			w.set(cfg.Members[1].To.String(), false)
			time.Sleep(5 * time.Second)
			synctest.Wait()
			if !slices.Equal(at, []int{0, 3, 0, 0}) {
				t.Errorf("round %d: when flows end, members get %v", round, at)
			}
			if e, _ := g.members[3].End(); e == nil || !e.Since.After(began) {
				t.Errorf("round %d: the occasion is %v", round, e)
			}
			at = nil
		}
	})
}

// What was decided is known to the next process: whose flows end, since when, and whose go on.
func TestEndsOutliveProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w ward
		cfg := checkedGroup(&w, closing, closing)
		first, g := set(t, cfg, Options{probe: w.probe})
		time.Sleep(5 * time.Second)
		for i := range 3 {
			w.set(cfg.Members[i].To.String(), true)
		}
		time.Sleep(5 * time.Second)
		w.set(cfg.Members[0].To.String(), false)
		time.Sleep(5 * time.Second)
		m1 := g.members[1]
		before := ended(g)
		if len(before) < 2 || !strings.Contains(strings.Join(before, "; "), "m3 failback") {
			t.Fatalf("%q", before)
		}
		saved := throughJSON(t, first.Save())
		first.Close()
		next, g := set(t, cfg, Options{probe: w.probe, Saved: saved})
		defer next.Close()
		if got := ended(g); !slices.Equal(got, before) {
			t.Errorf("%q, was %q", got, before)
		}
		if !g.members[1].failedSince.Equal(m1.failedSince) {
			t.Errorf("m1 failed %v, before %v", g.members[1].failedSince, m1.failedSince)
		}
		time.Sleep(5 * time.Second)
		if got := ended(g); len(got) != len(before) {
			t.Errorf("after further checks %q, was %q", got, before)
		}
		bad := *saved
		bad.Groups[0].Members[1].Ends = "denied"
		if bad.Groups[0].Members[1].valid() {
			t.Error("flows end by a reason that is not one of these")
		}
	})
}

// leftOut is a SharedMember of a relay that does not check.
type leftOut struct{}

func (leftOut) Found(bool, string) {}
func (leftOut) Leave()             {}

// What the relays that check a member for all have found is an occasion on those that do not check it, too.
func TestFlowsEndByWhatOtherRelaysFind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w ward
		cfg := checkedGroup(&w, closing, spec.LiveFlows{})
		cfg.Check.Shared = 1
		updates := map[string]func(CheckShare){}
		_, g := set(t, cfg, Options{probe: w.probe, Share: func(c SharedCheck) (SharedMember, CheckShare) {
			updates[c.Member] = c.Update
			return leftOut{}, CheckShare{Known: true, Up: true}
		}})
		time.Sleep(5 * time.Second)
		wantEnds(t, "others find all up", g)
		update := updates[fmt.Sprintf("%s %d", g.members[1].addr, g.members[1].ports)]
		update(CheckShare{Known: true, Why: "refused"})
		wantEnds(t, "and then one down", g, "m1 check-failed close 0")
		update(CheckShare{Known: true, Up: true})
		wantEnds(t, "and up again", g)
	})
}
