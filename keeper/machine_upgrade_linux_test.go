package keeper

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A restart that is asked for while an upgrade is under way or on trial happens afterwards: the worker has
// told somebody that it will. One that is on trial itself is no reason to wait.
func TestRestartAfterUpgrade(t *testing.T) {
	restart := message{kind: kindRestart, words: []uint64{0, 0}, texts: []string{""}}
	begin := func() *world {
		w := newWorld(t, Config{Healthy: 10 * time.Second, KeepSelf: true}, 100)
		w.ready(1)
		return w
	}
	upgrade := func(w *world, m message) { // to process 2
		w.say(1, m)
		w.hello(2)
		w.say(2, message{kind: kindPrepared, texts: []string{"fine"}})
		w.say(1, message{kind: kindHandedOver, words: []uint64{0}})
		w.die(1, Death{})
		w.answer(2)
		w.say(2, message{kind: kindReady})
	}
	toNew := message{kind: kindUpgrade, words: []uint64{1, 0}, texts: []string{"new"}}
	for _, c := range []struct {
		name string
		do   func(w *world)
		id   int // of the worker that the restart starts
	}{
		{"a restart on trial", func(w *world) { upgrade(w, restart); w.say(2, restart) }, 3},
		{"an upgrade on trial", func(w *world) {
			upgrade(w, toNew)
			w.say(2, restart)
			if w.procs[3] != nil {
				t.Error("restarted before the end of the trial")
			}
			w.pass(10 * time.Second)
		}, 3},
		{"an upgrade that is refused", func(w *world) {
			w.say(1, toNew)
			w.say(1, restart)
			w.die(2, Death{Code: 2})
			w.m.tick(w.m.next())
		}, 3},
		{"an upgrade that begins", func(w *world) {
			w.say(1, toNew)
			w.say(1, restart)
			w.hello(2)
			w.say(2, message{kind: kindPrepared, texts: []string{"fine"}})
			w.die(1, Death{})
			w.answer(2)
			w.say(2, message{kind: kindReady})
			w.pass(10 * time.Second)
		}, 3},
		{"another binary of the keeper", func(w *world) {
			w.m.cfg.KeepSelf = false
			upgrade(w, toNew)
			w.say(2, restart)
			w.pass(10 * time.Second)
			if w.procs[3] != nil || len(w.replaced) != 1 {
				t.Error("the restart is in the way of the keeper's own upgrade")
			}
			b := w.m.save(map[int]savedConn{2: {}})
			s, err := load(b, w.m.cfg, 100, w.now)
			if err != nil || !s.m.restartDue {
				t.Errorf("the next keeper has forgotten the restart: %v", err)
			}
			w.m.notReplaced(w.replaced[0], "no")
			w.pass(0)
		}, 3},
	} {
		w := begin()
		c.do(w)
		if p := w.m.standby; p == nil || p.id != c.id || p.reason != Restart || w.m.restartDue {
			t.Errorf("%s: %+v, %v", c.name, w.m.standby, w.lines)
		}
	}
	// A worker that is started after the request needs no further one.
	w := begin()
	upgrade(w, toNew)
	w.say(2, restart)
	w.die(2, Death{Signal: 9})
	w.ready(3)
	w.pass(time.Hour)
	if w.m.standby != nil {
		t.Errorf("restarted in vain: %v", w.lines)
	}
}

// Signals that come while a worker hands over are the next one's, or its own if it stays. One for an upgrade that meets a restart is not
// forgotten.
func TestSignalsDuringRestart(t *testing.T) {
	for _, stays := range []bool{false, true} {
		w := newWorld(t, Config{}, 100)
		w.ready(1)
		w.say(1, message{kind: kindRestart, words: []uint64{0, 0}})
		w.hello(2)
		w.m.signal(syscall.SIGUSR2, w.now)
		w.say(2, message{kind: kindPrepared, texts: []string{"fine"}})
		w.m.signal(syscall.SIGHUP, w.now)
		if slices.Contains(w.lines, "signal 1 to 1") {
			t.Error("a worker that hands over is told to reload")
		}
		is := 2
		if stays {
			is = 1
			w.say(1, message{kind: kindStaying, texts: []string{"cannot"}})
			w.die(2, Death{})
		} else {
			w.die(1, Death{})
			w.answer(2)
			w.say(2, message{kind: kindReady})
		}
		if !slices.Contains(w.lines, fmt.Sprint("signal 1 to ", is)) {
			t.Errorf("stays: %t: worker %d is not told to reload: %v", stays, is, w.lines)
		}
		w.pass(0)
		if p := w.m.standby; p == nil || p.reason != Upgraded || w.m.upgradeDue {
			t.Errorf("stays: %t: no upgrade, %+v, %v", stays, p, w.lines)
		}
	}
}

// A restart for which no worker can be started is refused, and whoever has asked for it is told: otherwise it would wait for ever.
func TestRestartThatCannotStart(t *testing.T) {
	for _, before := range []string{"nothing", "a restart on trial"} {
		w := newWorld(t, Config{}, 100)
		w.ready(1)
		id, number := 1, uint64(1)
		if before != "nothing" {
			w.say(1, message{kind: kindRestart, words: []uint64{0, 0}})
			w.hello(2)
			w.say(2, message{kind: kindPrepared, texts: []string{"fine"}})
			w.die(1, Death{})
			w.answer(2)
			w.say(2, message{kind: kindReady})
			id, number = 2, 2
		}
		w.procs[id].sent = nil
		w.noStart = true
		w.say(id, message{kind: kindRestart, words: []uint64{0, 0}})
		var last Upgrade
		for i := range w.procs[id].sent {
			if m := &w.procs[id].sent[i]; m.kind == kindUpgraded {
				last = upgradeOf(m, 1, 0)
			}
		}
		if last.ID != number || last.State != Refused || !last.Restart || last.Reason != "cannot start" {
			t.Errorf("after %s: %+v, %v", before, last, w.lines)
		}
		w.noStart = false
		w.say(id, message{kind: kindRestart, words: []uint64{0, 0}})
		if w.m.standby == nil || w.m.upgrade.ID != number+1 {
			t.Errorf("after %s: no restart after one that was refused: %v", before, w.lines)
		}
	}
}

// A stop that comes while a worker hands over, or before the next one is ready, is the next one's: what is held would end at once. A second
// one does not wait.
func TestStopDuringHandOver(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(w *world)
		want int // the worker that is told; 0: none
	}{
		{"it hands over", func(w *world) {
			w.say(1, message{kind: kindHandedOver, words: []uint64{0}})
			w.die(1, Death{})
			w.answer(2)
			w.say(2, message{kind: kindReady})
		}, 2},
		{"it dies", func(w *world) {
			w.die(1, Death{Signal: 9})
			w.answer(2)
			w.say(2, message{kind: kindReady})
		}, 2},
		{"it stays", func(w *world) { w.say(1, message{kind: kindStaying, texts: []string{"cannot"}}) }, 1},
		{"it ends", func(w *world) { w.say(1, message{kind: kindExiting}); w.die(1, Death{}) }, 0},
		{"the next one dies", func(w *world) { w.die(2, Death{Signal: 9}); w.die(1, Death{}) }, 0},
		{"a second one", func(w *world) { w.m.signal(syscall.SIGTERM, w.now); w.die(1, Death{}) }, 1},
	} {
		w := newWorld(t, Config{}, 100)
		w.ready(1)
		w.say(1, message{kind: kindRestart, words: []uint64{0, 0}})
		w.hello(2)
		w.say(2, message{kind: kindPrepared, texts: []string{"fine"}})
		w.m.signal(syscall.SIGTERM, w.now)
		w.check()
		if w.saw("signal 15") || w.m.standby.killed != "" {
			t.Errorf("%s: %v", c.name, w.lines)
		}
		c.do(w)
		for id := range 3 {
			if told := slices.Contains(w.lines, fmt.Sprint("signal 15 to ", id)); told != (id == c.want && id != 0) {
				t.Errorf("%s: worker %d is told: %t; %v", c.name, id, told, w.lines)
			}
		}
		if w.m.finished != (c.want != 2 && c.name != "it stays") {
			t.Errorf("%s: finished: %t; %v", c.name, w.m.finished, w.lines)
		}
	}
	// A worker after a crash is told when it has what the one before had.
	w := newWorld(t, Config{}, 100)
	w.ready(1)
	w.die(1, Death{Signal: 9})
	w.m.signal(syscall.SIGTERM, w.now)
	if w.saw("signal 15") {
		t.Errorf("a worker that is not ready is told: %v", w.lines)
	}
	w.ready(2)
	if !w.saw("signal 15 to 2") {
		t.Errorf("a worker is not told: %v", w.lines)
	}
	// One that is killed does not begin to take over.
	w = newWorld(t, Config{}, 100)
	w.ready(1)
	w.say(1, message{kind: kindRestart, words: []uint64{0, 0}})
	w.hello(2)
	w.m.signal(syscall.SIGTERM, w.now)
	w.say(2, message{kind: kindPrepared, texts: []string{"fine"}})
	if w.m.active.asked || !w.saw("signal 15 to 1") {
		t.Errorf("a worker that ends is asked to hand over: %v", w.lines)
	}
}

// What a worker says about its failure reaches whoever asked for it, without control characters.
func TestFailing(t *testing.T) {
	w := newWorld(t, Config{}, 100)
	w.ready(1)
	w.say(1, message{kind: kindUpgrade, words: []uint64{1, 0}, texts: []string{"new"}})
	w.hello(2)
	w.say(2, message{kind: kindFailing, texts: []string{"c.yaml:1:1: wrong\nREADY=1"}})
	w.procs[1].sent = nil
	w.die(2, Death{Code: 2})
	sent := w.procs[1].sent
	if len(sent) != 1 || upgradeOf(&sent[0], 1, 0).Reason != "the new worker ended: exit code 2 (c.yaml:1:1: wrong READY=1)" {
		t.Errorf("%+v", sent)
	}
}

// A program that is no worker, or one too old to know a keeper, ends before it connects. Whoever asked for the
// upgrade learns where to look.
func TestUpgradeToOther(t *testing.T) {
	w := newWorld(t, Config{}, 100)
	w.ready(1)
	w.say(1, message{kind: kindUpgrade, words: []uint64{1, 0}, texts: []string{"other"}})
	w.die(2, Death{Code: 2})
	if u := w.m.upgrade; u.State != Refused || u.Reason != "the new worker ended: exit code 2, before it connected to the keeper" {
		t.Errorf("%+v", u)
	}
	w.say(1, message{kind: kindUpgrade, words: []uint64{2, 0}, texts: []string{"other"}})
	delete(w.procs, 3)
	w.m.gone(3, Death{Code: 2}, "\n\x1b[31mother: bad\u202eflag\nusage: other\n", w.now)
	w.check()
	if u := w.m.upgrade; u.State != Refused || u.Reason != "the new worker ended: exit code 2, before it connected to the keeper; it wrote: [31mother: bad flag" {
		t.Errorf("%+v", u)
	}
	if !w.saw("worker-wrote worker 1003 wrote before it connected: \n [31mother: bad flag\nusage: other\n") {
		t.Errorf("%q", w.lines)
	}
}

// A version that would write to memory for as long as it lives is started again, with the keeper's output. If there is nobody
// any more who could hand over to it, it is not.
func TestUpgradeToVersionWithoutOutput(t *testing.T) {
	for _, dies := range []bool{false, true} {
		w := newWorld(t, Config{}, 100)
		w.ready(1)
		w.say(1, message{kind: kindUpgrade, words: []uint64{1, 0}, texts: []string{"old"}})
		if !w.procs[2].apart {
			t.Fatal("its output is not kept apart")
		}
		w.say(2, message{kind: kindHello, words: []uint64{protocol, featureAsk}})
		if !w.procs[2].killed {
			t.Fatal("it goes on")
		}
		if dies {
			w.die(1, Death{Signal: 9})
			w.die(2, Death{Signal: 9})
			if u := w.m.upgrade; u.State != Refused || w.m.standby != nil {
				t.Errorf("%+v", u)
			}
			continue
		}
		w.die(2, Death{Signal: 9})
		if w.procs[3] == nil || w.procs[3].apart || w.m.upgrade.State != Checking {
			t.Fatalf("%+v, %q", w.m.upgrade, w.lines)
		}
		w.say(3, message{kind: kindHello, words: []uint64{protocol, featureAsk}})
		w.answer(3)
		w.say(3, message{kind: kindPrepared, texts: []string{"fine"}})
		if w.m.upgrade.State != HandingOver {
			t.Errorf("%+v", w.m.upgrade)
		}
	}
}

// Only what was never tried is kept apart.
func TestOutputOfOtherStarts(t *testing.T) {
	w := newWorld(t, Config{}, 100)
	w.ready(1)
	w.die(1, Death{Signal: 9})
	w.ready(2)
	w.say(2, message{kind: kindRestart, words: []uint64{0, 0}, texts: []string{""}})
	w.pass(0)
	for id := 1; id <= 3; id++ {
		if id == 3 && w.procs[3] == nil || w.apart[id] {
			t.Errorf("process %d: apart %v", id, w.apart[id])
		}
	}
}

// A service manager's watchdog is told in time that the keeper works, even if the keeper is replaced again and
// again before it would tell the next time.
func TestWatchdogAcrossUpgrades(t *testing.T) {
	const every = 15 * time.Second
	w := newWorld(t, Config{NotifyEvery: every}, 100)
	w.ready(1)
	told := w.now
	for range 10 {
		for range 11 {
			w.lines = nil
			w.pass(time.Second)
			if w.saw("WATCHDOG=1") {
				told = w.now
			}
			if silent := w.now.Sub(told); silent > every+time.Second {
				t.Fatalf("nothing was told for %v", silent)
			}
		}
		w.saveAndLoad()
	}
}

// handingOver brings an upgrade from process 1 to process 2 to where process 1 has been asked to hand over.
func (w *world) handingOver() {
	w.tb.Helper()
	w.say(1, message{kind: kindUpgrade, words: []uint64{1, 0}, texts: []string{"new"}})
	w.hello(2)
	w.say(2, message{kind: kindPrepared, texts: []string{"fine"}})
	if w.m.upgrade.State != HandingOver {
		w.tb.Fatalf("%+v", w.m.upgrade)
	}
}

// A worker that cannot hand over goes on: the upgrade is refused, the watchdog watches it again, and it can be asked
// once more.
func TestStaying(t *testing.T) {
	w := newWorld(t, Config{Watchdog: time.Minute, HandOverTimeout: time.Second, KeepSelf: true}, 100)
	w.ready(1)
	w.say(1, holdOf(1, "", 2), w.fds(2)...)
	w.handingOver()
	w.procs[1].sent = nil
	w.say(1, message{kind: kindStaying, texts: []string{"no\nroom"}})
	sent := w.procs[1].sent
	if len(sent) != 1 || upgradeOf(&sent[0], 1, 0).Reason != "the worker cannot hand over: no room" || upgradeOf(&sent[0], 1, 0).State != Refused || sent[0].word(0) != 1 {
		t.Errorf("%+v", sent)
	}
	if !w.procs[2].killed || w.procs[1].killed {
		t.Errorf("%v", w.lines)
	}
	w.die(2, Death{Signal: 9})
	w.pass(2 * time.Second)
	w.say(1, holdOf(2, "", 2), w.fds(2)...)
	w.say(1, message{kind: kindAlive})
	if w.procs[1].killed || w.m.table.len() != 2 || w.m.upgrade.State != Refused {
		t.Errorf("%v", w.lines)
	}
	w.say(1, message{kind: kindUpgrade, words: []uint64{2, 0}, texts: []string{"new"}})
	w.hello(3)
	w.say(3, message{kind: kindPrepared, texts: []string{"fine"}})
	w.say(1, message{kind: kindHandedOver, words: []uint64{0}})
	w.die(1, Death{})
	w.answer(3)
	w.say(3, message{kind: kindReady})
	w.pass(10 * time.Second)
	if w.m.upgrade.State != Done || w.procs[3].got != 4 {
		t.Errorf("%+v, %d descriptors", w.m.upgrade, w.procs[3].got)
	}
	// One that stays and hangs is found out.
	w.say(3, message{kind: kindUpgrade, words: []uint64{1, 0}, texts: []string{"new"}})
	w.hello(4)
	w.say(4, message{kind: kindPrepared})
	w.say(3, message{kind: kindStaying})
	w.die(4, Death{Signal: 9})
	w.pass(2 * time.Minute)
	w.pass(2 * time.Minute)
	if !w.procs[3].killed {
		t.Error("a worker that stayed is not watched")
	}
}

// A worker that was asked to hand over, and ends because it was asked to before, is waited for as any other that ends: no other worker takes
// over. One that has handed over has nothing more to say.
func TestEndsInsteadOfHandingOver(t *testing.T) {
	w := newWorld(t, Config{HandOverTimeout: time.Second}, 100)
	w.ready(1)
	w.handingOver()
	w.say(1, message{kind: kindExiting})
	if !w.procs[2].killed || w.m.upgrade.State != Refused || w.m.upgrade.Reason != "the worker ends" {
		t.Errorf("%+v, %v", w.m.upgrade, w.lines)
	}
	w.die(2, Death{Signal: 9})
	w.pass(time.Hour) // it drains
	if w.procs[1].killed || w.m.finished {
		t.Errorf("%v", w.lines)
	}
	w.die(1, Death{Code: 3})
	if !w.m.finished || w.m.exitCode != 3 {
		t.Errorf("%t, code %d", w.m.finished, w.m.exitCode)
	}
	w = newWorld(t, Config{}, 100)
	w.ready(1)
	w.handingOver()
	w.say(1, message{kind: kindHandedOver, words: []uint64{0}})
	w.say(1, message{kind: kindExiting})
	w.die(1, Death{})
	if w.m.finished || w.m.upgrade.State != Starting {
		t.Errorf("%+v, %v", w.m.upgrade, w.lines)
	}
}

// A worker on standby that dies while the old one hands over is the one that the next worker, and whoever asked, is told
// about: the old one has ended as it was asked to.
func TestStandbyDiesDuringHandOver(t *testing.T) {
	for _, c := range []struct {
		name string
		die  func(w *world)
		want Death
	}{
		{"dead", func(w *world) { w.die(2, Death{Signal: 11}) }, Death{PID: 1002, Signal: 11}},
		{"about to be dead", func(w *world) { w.m.kill(w.m.standby, "not ready in time") }, Death{PID: 1002, Signal: 9, Why: "not ready in time"}},
	} {
		w := newWorld(t, Config{}, 100)
		w.ready(1)
		w.handingOver()
		c.die(w)
		w.say(1, message{kind: kindHandedOver, words: []uint64{0}})
		w.die(1, Death{})
		if w.m.died != c.want || !strings.Contains(w.m.upgrade.Reason, c.want.String()) || w.m.upgrade.State != RolledBack {
			t.Errorf("%s: %+v, %+v", c.name, w.m.died, w.m.upgrade)
		}
	}
}

// Workers that die before they are ready count as starts, and their time as one in which nobody worked.
func TestDeathsBeforeReady(t *testing.T) {
	w := newWorld(t, Config{Backoff: time.Second, MaxBackoff: time.Second}, 100)
	w.ready(1)
	ended := w.now
	w.die(1, Death{Signal: 9})
	w.now = w.now.Add(time.Second)
	w.die(2, Death{Signal: 9})
	w.pass(time.Second)
	w.hello(3)
	w.die(3, Death{Signal: 9})
	w.pass(time.Second)
	w.ready(4)
	if want := [...]int{First: 1, Crash: 3, Restart: 0}; w.m.starts != want {
		t.Errorf("%v, want %v", w.m.starts, want)
	}
	if !w.m.diedAt.Equal(ended) {
		t.Errorf("nobody has worked since %v, want %v", w.m.diedAt, ended)
	}
	n := w.m.starts
	if w.saveAndLoad(); w.m.starts != n {
		t.Errorf("the next keeper counts %v, want %v", w.m.starts, n)
	}
}

// A worker changes the keeper's times, for the next keeper, too.
func TestSetTimes(t *testing.T) {
	w := newWorld(t, Config{Watchdog: time.Hour}, 100)
	w.ready(1)
	w.say(1, message{kind: kindTimes, words: Times{Watchdog: time.Second, Healthy: -1, MaxBackoff: time.Minute}.words()})
	want := Times{ReadyTimeout: time.Minute, Watchdog: time.Second, Healthy: -1, MaxBackoff: time.Minute}
	if got := w.m.cfg.times(); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if w.saveAndLoad(); w.m.cfg.times() != want {
		t.Errorf("the next keeper has %+v, want %+v", w.m.cfg.times(), want)
	}
	w.pass(2 * time.Second)
	w.pass(2 * time.Second)
	if !w.procs[1].killed {
		t.Error("the new watchdog has no effect")
	}
	w.die(1, Death{Signal: 9})
	w.ready(2)
	w.say(2, message{kind: kindTimes, words: Times{Watchdog: -1 << 63, ReadyTimeout: -1, MaxBackoff: 1<<63 - 1}.words()})
	w.pass(1000 * time.Hour)
	w.pass(1000 * time.Hour)
	if w.procs[2].killed || w.m.cfg.ReadyTimeout != time.Minute || w.m.cfg.MaxBackoff > 365*24*time.Hour {
		t.Errorf("%+v, %v", w.m.cfg.times(), w.lines)
	}
}
