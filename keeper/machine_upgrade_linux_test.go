package keeper

import (
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
