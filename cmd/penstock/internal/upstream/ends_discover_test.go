package upstream

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/relay"
)

// spareGroup returns a group whose primaries are those of a lookup, with a backup of the file.
func spareGroup() *spec.Group {
	cfg := &spec.Group{Balance: "first", Members: members(1), Up: closing}
	cfg.Members[0].Name, cfg.Members[0].Backup = "spare", true
	return cfg
}

// with returns targets with a change of each.
func with(targets []Target, change func(*Target)) []Target {
	for i := range targets {
		change(&targets[i])
	}
	return targets
}

// Flows of backups end when a lookup has a primary again after it had none that accepts flows, and not when its primaries only are others.
func TestFlowsOfBackupsEndByLookups(t *testing.T) {
	unhealthy := func(t *Target) { t.Health = Unhealthy }
	draining := func(t *Target) { t.Draining = true }
	for _, c := range []struct {
		name    string
		answers [][]Target // one a minute
		want    string     // after which of them flows end; -: they go on
	}{
		{"the first answer", [][]Target{found(1, 2)}, "!"},
		{"no primary, and then one", [][]Target{found(1), nil, found(1)}, "!-!"},
		{"another one", [][]Target{found(1), nil, found(2)}, "!-!"},
		{"a second one", [][]Target{nil, found(1), found(1, 2), found(2)}, "-!!!"}, // it is one occasion
		{"moved", [][]Target{found(1), found(2), nil}, "!!-"},
		{"unhealthy", [][]Target{found(1, 2), with(found(1, 2), unhealthy), found(1, 2)}, "!-!"},
		{"unhealthy one", [][]Target{found(1, 2), append(with(found(1), unhealthy), found(2)...), with(found(1, 2), unhealthy)}, "!!-"},
		{"draining", [][]Target{found(1), with(found(1), draining), found(1)}, "!-!"},
		{"a new one that drains", [][]Target{found(1), nil, with(found(2), draining), found(2)}, "!--!"},
	} {
		synctest.Test(t, func(t *testing.T) {
			cfg := spareGroup()
			_, g, tell := startSource(t, cfg, Options{})
			defer g.set.Close()
			got, since := "", g.failback
			for _, answer := range c.answers {
				time.Sleep(time.Minute)
				tell(answer, nil)
				synctest.Wait()
				mark := "-"
				if list := ended(g); len(list) > 0 {
					mark = "!"
					if len(list) > 1 || !strings.HasPrefix(list[0], "spare failback close ") {
						t.Errorf("%s: %q", c.name, list)
					}
				}
				if strings.HasSuffix(got, "!") && mark == "!" && g.failback != since {
					t.Errorf("%s: another occasion while there was a primary", c.name)
				}
				got, since = got+mark, g.failback
			}
			if got != c.want {
				t.Errorf("%s: %s, want %s", c.name, got, c.want)
			}
		})
	}
}

// A registry that gives members other roles in one answer leaves the group with a primary all the time; in two answers it does not.
func TestFlowsEndByRolesOfRegistry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		roles := func(primary ...int) []Target {
			list := found(1, 2, 3)
			for i := range list {
				list[i].Backup = !slices.Contains(primary, i+1)
			}
			return list
		}
		cfg := &spec.Group{Balance: "first", Up: closing}
		_, g, tell := startSource(t, cfg, Options{})
		defer g.set.Close()
		tell(roles(1), nil)
		wantEnds(t, "at the start", g)
		time.Sleep(time.Minute)
		tell(roles(2), nil)
		wantEnds(t, "another one is primary", g)
		time.Sleep(time.Minute)
		tell(roles(), nil)
		wantEnds(t, "none is", g)
		time.Sleep(time.Minute)
		tell(roles(3), nil)
		wantEnds(t, "one is again", g, "m1 failback close 0", "m2 failback close 0")
		time.Sleep(time.Minute)
		tell(roles(1), nil)
		wantEnds(t, "another one is at once", g, "m2 failback close 60", "m3 failback close 60")
	})
}

// A primary that a lookup finds is back when its first check has passed.
func TestFlowsOfBackupsWaitForCheckOfFoundMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w ward
		cfg := spareGroup()
		cfg.Check = &spec.Check{Kind: "tcp", Every: time.Second, Timeout: time.Second, Rise: 2, Fall: 2}
		w.set(cfg.Members[0].To.String(), false)
		w.set(foundAt(1).Addr.String(), true)
		var looked []string
		_, g, tell := startSource(t, cfg, Options{probe: w.probe, FlowsEnd: func(m *Member) { looked = append(looked, m.name) }})
		defer g.set.Close()
		tell(found(1), nil)
		time.Sleep(10 * time.Second)
		wantEnds(t, "it is found, and down", g)
		if len(looked) > 0 {
			t.Errorf("before its first check flows ended of %q", looked)
		}
		w.set(foundAt(1).Addr.String(), false)
		time.Sleep(10 * time.Second)
		if got := ended(g); len(got) != 1 || !strings.HasPrefix(got[0], "spare failback close ") {
			t.Errorf("it is up: %q", got)
		}
	})
}

// The next process knows whether a primary of a lookup was there: it begins no occasion, and forgets none, although it has not been answered yet.
func TestEndsByLookupsOutliveProcess(t *testing.T) {
	for _, back := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			with := spareGroup()
			without := *with
			without.Members = nil
			s, g, tell := startSource(t, &without, Options{})
			tell(found(1, 2), nil)
			with.Name, with.Discover = g.name, without.Discover
			s.Apply([]*spec.Group{with})
			if back {
				time.Sleep(time.Minute)
				tell(nil, nil)
				time.Sleep(time.Minute)
				tell(found(2), nil)
			}
			synctest.Wait()
			before := ended(g)
			if len(before) > 0 != back {
				t.Fatalf("%q", before)
			}
			saved := throughJSON(t, s.Save())
			s.Close()
			_, g, tell = startSource(t, spareGroup(), Options{Saved: saved})
			defer g.set.Close()
			wantEnds(t, "the next process", g, before...)
			tell(found(2), nil)
			wantEnds(t, "after its first answer", g, before...)
		})
	}
}

// Two groups with the same members and the same check, which relays share: each does with flows what it says itself.
func TestGroupsWithSharedChecksEndFlowsAsEachSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		updates := map[string][]func(CheckShare){}
		s := NewSet(Options{
			probe: func(context.Context, *spec.Group, relay.Addr) error { return nil },
			Share: func(c SharedCheck) (SharedMember, CheckShare) {
				updates[c.Member] = append(updates[c.Member], c.Update)
				return leftOut{}, CheckShare{Known: true, Up: true}
			}})
		defer s.Close()
		group := func(name string, down spec.LiveFlows) *spec.Group {
			return &spec.Group{Name: name, Balance: "round-robin", Members: members(3), Down: down,
				Check: &spec.Check{Kind: "tcp", Every: time.Second, Timeout: time.Second, Rise: 1, Fall: 2, Shared: 1}}
		}
		slow := spec.LiveFlows{What: "drain", After: time.Minute}
		s.Apply([]*spec.Group{group("close", closing), group("drain", slow), group("keep", spec.LiveFlows{What: "keep"})})
		say := func(i int, share CheckShare) {
			m := s.Group("keep").members[i]
			for _, update := range updates[fmt.Sprintf("%s %d", m.addr, m.ports)] {
				update(share)
			}
		}
		want := func(what string, want map[string]string) {
			t.Helper()
			for _, name := range []string{"close", "drain", "keep"} {
				synctest.Wait()
				if got := strings.Join(ended(s.Group(name)), ", "); got != want[name] {
					t.Errorf("%s: group %s: %q, want %q", what, name, got, want[name])
				}
			}
		}
		time.Sleep(5 * time.Second)
		want("all are up", nil)
		for _, name := range []string{"close", "drain", "keep"} {
			pick(t, s.Group(name), 6, true, nil)
		}
		say(1, CheckShare{Known: true, Why: "refused"})
		want("others find one down", map[string]string{"close": "m1 check-failed close 0", "drain": "m1 check-failed drain 0"})
		time.Sleep(time.Second)
		say(0, CheckShare{Known: true, Why: "refused"})
		want("and another one, soon after", map[string]string{"close": "m1 check-failed close 1", "drain": "m1 check-failed drain 1"})
		for _, g := range s.Snapshot() {
			if kept := map[string]uint64{"close": 2, "drain": 2}[g.Name]; g.DownKept != kept {
				t.Errorf("group %s: %d flows kept, want %d", g.Name, g.DownKept, kept)
			}
		}
		say(0, CheckShare{Known: true, Up: true})
		say(1, CheckShare{Known: true, Up: true})
		want("all are up again", nil)
	})
}
