package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A tester is a relay that follows the configuration and reports, without relaying anything.
// It counts a hundred flows in each second.
type tester struct {
	*followed
	name  string
	since time.Time
	mu    sync.Mutex
	r     Report
	kill  func()
	fails time.Time // since when connects fail for every other flow; zero: they do not
	// refuses returns why a text cannot be applied; nil: it can.
	refuses func(text string) error
}

func (x *tester) report() Report {
	x.mu.Lock()
	defer x.mu.Unlock()
	v, _ := x.runs()
	if v.Version != 0 && v.Version != x.r.Version {
		if err := x.refuses(v.Text); err != nil {
			x.r.Refused = &Refused{Version: v.Version, Error: err.Error(), At: time.Now()}
		} else {
			x.r.Version, x.r.Refused = v.Version, nil
		}
	} else {
		x.r.Refused = nil
	}
	x.r.State = "ready"
	x.r.Begun = x.flows(x.since)
	x.r.Served = &Served{Begun: x.r.Begun, Ends: map[string]int64{"end": x.r.Begun}, Sizes: []int64{0, 0, x.r.Begun}, FirstByte: []int64{x.r.Begun}}
	if !x.fails.IsZero() {
		x.r.Served.ConnectFailures = x.flows(x.fails) / 2
	}
	return x.r
}

// flows returns how many flows there were since a time. Nothing else is counted by time, so that a busy machine does not
// look as if clients were missing.
func (x *tester) flows(since time.Time) int64 { return int64(100 * time.Since(since).Seconds()) }

// begin makes connects fail from now on.
func (x *tester) begin() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.fails.IsZero() {
		x.fails = time.Now()
	}
}

func (w *world) testers(n int) (list []*tester) {
	w.Helper()
	for i := range n {
		x := &tester{name: fmt.Sprintf("relay-%d", i), since: time.Now(), refuses: func(string) error { return nil }}
		x.followed = w.follow(x.name, 0)
		r := w.relay(x.name, func(c *PresenceConfig) { c.Report = x.report })
		x.kill = r.stop
		done := make(chan struct{})
		ended := make(chan struct{})
		go func() { // as a relay that has applied something
			defer close(ended)
			for {
				select {
				case <-done:
					return
				case <-time.After(20 * time.Millisecond):
					r.Changed()
				}
			}
		}()
		w.Cleanup(func() { close(done); <-ended })
		list = append(list, x)
	}
	w.until("all report a version", func() bool {
		nodes := w.nodes()
		return len(nodes) == n && !slices.ContainsFunc(nodes, func(n Node) bool { return n.Report.Version == 0 || !n.Healthy() })
	})
	return list
}

func (w *world) try(text string, share float64) *Trial {
	w.Helper()
	o := w.operator()
	s, err := o.State(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	t, err := o.Try(w.Context(), s, Draft{Text: text, Message: "try " + text}, patiently(share))
	if err != nil {
		w.Fatal(err)
	}
	return t
}

// patiently returns how a share of the relays tries a version on a busy machine.
func patiently(share float64) TrialConfig {
	return TrialConfig{Share: share, Before: 100 * time.Millisecond, Silence: patience}
}

// watch watches a trial for long enough that the canaries can run it, and report, on a busy machine.
func (w *world) watch(t *Trial, tell func(Progress)) (p Progress) {
	for long := time.Second; long < 2*patience; long *= 4 {
		p = t.Watch(w.Context(), long, tell)
		if !strings.HasPrefix(p.Why, "not run in time") && !strings.Contains(p.Why, "has not reported") && !strings.Contains(p.Why, "have run the version for less than") {
			break
		}
	}
	return p
}

// all waits until relays run a version.
func (w *world) all(relays []*tester, version int64) {
	w.Helper()
	for _, x := range relays {
		w.comes(x.followed, version)
	}
}

func quiet(Progress) {}

// A good canary is promoted, a bad one goes back, and the other relays never see it.
func TestTrial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.publish("one")
		relays := w.testers(4)
		tr := w.try("two", 0.5)
		if len(tr.Canaries) != 2 || tr.Others != 2 {
			t.Fatalf("canaries %v, others %d", tr.Canaries, tr.Others)
		}
		canary := func(x *tester) bool { return slices.Contains(tr.Canaries, x.name) }
		if p := w.watch(tr, quiet); p.Outcome != Good || p.Run != 2 || p.Of != 2 {
			t.Fatalf("%+v", p)
		}
		for _, x := range relays {
			if v, err := x.runs(); err != nil || (v.Version == 2) != canary(x) {
				t.Errorf("%s runs version %d, %v", x.name, v.Version, err)
			}
		}
		if _, err := w.operator().Try(t.Context(), tr.state, Draft{Text: "three"}, patiently(0.5)); err == nil || !strings.Contains(err.Error(), "tries version 2 with 2 relays") {
			t.Errorf("a second canary: %v", err)
		}
		if err := tr.Promote(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.all(relays, 2)
		if p := w.operator().AwaitVersion(t.Context(), 2, quiet); p.Outcome != Good || p.Run != 4 {
			t.Errorf("%+v", p)
		}

		for _, x := range relays {
			x.refuses = func(text string) error {
				if text == "three" {
					return errors.New("an invalid port")
				}
				return nil
			}
		}
		tr = w.try("three", 0.01)
		if len(tr.Canaries) != 1 {
			t.Errorf("canaries %v", tr.Canaries)
		}
		p := tr.Watch(t.Context(), time.Minute, quiet)
		if p.Outcome != Bad || !strings.Contains(p.Why, tr.Canaries[0]+": an invalid port") {
			t.Errorf("%+v", p)
		}
		if err := tr.TakeBack(t.Context(), p.Why); err != nil {
			t.Fatal(err)
		}
		w.all(relays, 2)

		tr = w.try("four", 0.5)
		p = tr.Watch(t.Context(), patience, func(p Progress) {
			if p.Run == 2 {
				for _, x := range relays {
					if canary(x) {
						x.begin()
					}
				}
			}
		})
		if p.Outcome != Bad || !strings.Contains(p.Why, " connects failed for ") {
			t.Errorf("%+v", p)
		}
		if err := tr.TakeBack(t.Context(), p.Why); err != nil {
			t.Fatal(err)
		}
		w.all(relays, 2)
		if v := w.publish("five"); v.Version != 5 || v.Parent != 2 {
			t.Errorf("%+v", v)
		}
		w.all(relays, 5)
		log, err := ReadLog(t.Context(), w.client, testKey, 100)
		var did []string
		for _, e := range slices.Backward(log) {
			did = append(did, e.What+" "+e.To)
		}
		want := "publish version 1, canary version 2, promote version 2, canary version 3, take-back version 3, canary version 4, take-back version 4, publish version 5"
		if got := strings.Join(did, ", "); err != nil || got != want {
			t.Errorf("the log has %s, %v; want %s", got, err, want)
		}
	})
}

// Whoever tries a version dies: its lease ends, and the canaries go back.
func TestTrialEndsWithItsProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.publish("one")
		relays := w.testers(2)
		tr := w.try("two", 1)
		w.all(relays, 2)
		tr.cancel() // nobody keeps the lease alive
		tr.ended.Wait()
		tr.o.revoke(tr.lease) // as the end of it would do
		w.all(relays, 1)
		p := tr.Watch(t.Context(), time.Minute, quiet)
		if p.Outcome != Bad || !strings.Contains(p.Why, "somebody has ended the trial") {
			t.Errorf("%+v", p)
		}
		var conflict *ConflictError
		if err := tr.Promote(t.Context()); !errors.As(err, &conflict) {
			t.Errorf("promoted, %v", err)
		}
		w.all(relays, 1)
	})
}

// Somebody else ends a trial, by a rollback or by publishing.
func TestTrialEndedByOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.publish("one")
		relays := w.testers(2)
		other := &Operator{w.client, testKey, "other"}
		tr := w.try("two", 1)
		w.all(relays, 2)
		if _, err := other.Publish(t.Context(), tr.state, Draft{Text: "x"}, "publish"); err == nil {
			t.Error("published while a version is tried")
		}
		v, old, err := other.Rollback(t.Context(), 0, "no")
		if err != nil || v.Version != 1 || old.Version != 2 {
			t.Errorf("%+v, %+v, %v", v, old, err)
		}
		w.all(relays, 1)
		if p := tr.Watch(t.Context(), time.Minute, quiet); p.Outcome != Bad || !strings.Contains(p.Why, "ended the trial") {
			t.Errorf("%+v", p)
		}
		if err := tr.TakeBack(t.Context(), "ended"); err != nil {
			t.Error(err)
		}
		tr = w.try("three", 1)
		w.all(relays, 3)
		w.publish("four")
		w.all(relays, 4)
		p := tr.Watch(t.Context(), time.Minute, quiet)
		if p.Outcome != Bad || !strings.Contains(p.Why, "published version 4") {
			t.Errorf("%+v", p)
		}
		if err := tr.Promote(t.Context()); err == nil {
			t.Error("promoted after another version")
		}
		w.all(relays, 4)
	})
}

// A trial goes on while the server is restarted, and ends well.
func TestTrialThroughRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.publish("one")
		relays := w.testers(2)
		tr := w.try("two", 0.5)
		restart := sync.OnceFunc(func() {
			w.server.Kill()
			w.server.Restart()
		})
		p := w.watch(tr, func(p Progress) {
			if p.Run == 1 {
				restart()
			}
		})
		if p.Outcome != Good {
			t.Fatalf("%+v", p)
		}
		if err := tr.Promote(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.all(relays, 2)
	})
}

// A trial may last longer than its lease, which is kept alive.
func TestTrialOutlastsItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.publish("one")
		relays := w.testers(2)
		tr := w.try("two", 0.5)
		time.Sleep(5 * trialTTL)
		if err := tr.Promote(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.all(relays, 2)
	})
}

// Only relays that are ready and not drained are canaries, and how many were left out is said.
func TestTrialLeavesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.publish("one")
		relays := w.testers(3)
		drain := func(on bool, names ...string) {
			t.Helper()
			if _, err := w.operator().SetDrain(t.Context(), names, on, "", nil); err != nil {
				t.Fatal(err)
			}
		}
		drain(true, "relay-0", "relay-1", "relay-2")
		s, err := w.operator().State(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.operator().Try(t.Context(), s, Draft{Text: "two"}, patiently(1)); err == nil || !strings.Contains(err.Error(), "of 3 relays none is ready") {
			t.Errorf("with all relays drained: %v", err)
		}
		drain(false, "relay-2")
		tr := w.try("two", 1)
		if len(tr.Canaries) != 1 || tr.Canaries[0] != "relay-2" || tr.Others != 0 || tr.LeftOut != 2 {
			t.Errorf("canaries %v, others %d, left out %d", tr.Canaries, tr.Others, tr.LeftOut)
		}
		w.comes(relays[2].followed, 2)
		if err := tr.TakeBack(t.Context(), "enough"); err != nil {
			t.Fatal(err)
		}
		w.all(relays, 1)
	})
}

// A canary that dies is not promoted, and one that is dead is not counted among those that run a version.
func TestTrialOfADeadRelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.publish("one")
		relays := w.testers(2)
		tr := w.try("two", 0.5)
		dead := slices.IndexFunc(relays, func(x *tester) bool { return x.name == tr.Canaries[0] })
		w.comes(relays[dead].followed, 2)
		p := tr.Watch(t.Context(), patience, func(p Progress) {
			if p.Run == 1 {
				relays[dead].kill()
			}
		})
		if p.Outcome != Bad || !strings.Contains(p.Why, "no longer there: "+tr.Canaries[0]) {
			t.Errorf("%+v", p)
		}
		if err := tr.TakeBack(t.Context(), p.Why); err != nil {
			t.Fatal(err)
		}

		w = newWorld(t)
		w.publish("one")
		relays = w.testers(2)
		w.all(relays, 1)
		relays[0].kill() // its report stays for as long as its lease
		p = w.operator().AwaitVersion(t.Context(), 1, func(p Progress) {
			if p.Run > 1 {
				t.Errorf("a dead relay is counted: %+v", p)
			}
		})
		if p.Outcome != Good || p.Run != 1 || p.Of != 1 {
			t.Errorf("%+v", p)
		}
	})
}

// What cannot be tried is said before anything is written.
func TestTrialRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		o := w.operator()
		try := func() error {
			s, err := o.State(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			_, err = o.Try(t.Context(), s, Draft{Text: "x"}, patiently(0.5))
			return err
		}
		if err := try(); !errors.Is(err, ErrFirst) {
			t.Errorf("the first version: %v", err)
		}
		w.publish("one")
		if err := try(); !errors.Is(err, ErrNoRelays) {
			t.Errorf("without relays: %v", err)
		}
		s, err := o.State(t.Context())
		if err != nil || s.Current.Last != 1 || s.Canary != nil {
			t.Errorf("%+v, %v", s, err)
		}
		relays := w.testers(1)
		tr := w.try("two", 0.5)
		ctx, cancel := context.WithCancel(t.Context())
		p := tr.Watch(ctx, time.Minute, func(p Progress) {
			if p.Run == 1 {
				cancel()
			}
		})
		if cancel(); p.Outcome != Bad || p.Why != "interrupted" {
			t.Errorf("%+v", p)
		}
		if err := tr.TakeBack(t.Context(), p.Why); err != nil {
			t.Error(err)
		}
		w.all(relays, 1)
	})
}

// After etcd was restored from a backup, relays run a later version than the current one. They would all go back to that once
// a later one is tried, so it is not.
func TestTrialOfRelaysAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.publish("one")
		relays := w.testers(2)
		w.relay("ahead", func(c *PresenceConfig) { c.Report = func() Report { return Report{Version: 7, State: "ready"} } })
		w.until("it reports", func() bool { return len(w.nodes()) == 3 })
		o := w.operator()
		s, err := o.State(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := o.Try(t.Context(), s, Draft{Text: "two"}, patiently(0.5)); err == nil || !strings.Contains(err.Error(), "ahead runs version 7") {
			t.Errorf("tried: %v", err)
		}
		if now, err := o.State(t.Context()); err != nil || now.mod != s.mod || now.Canary != nil {
			t.Errorf("%+v, %v", now, err)
		}
		if v := w.publish("two"); v.Version != 8 {
			t.Errorf("%+v", v)
		}
		w.all(relays, 8)
		tr := w.try("three", 0.5)
		if err := tr.TakeBack(t.Context(), "enough"); err != nil {
			t.Fatal(err)
		}
	})
}
