package keeper

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// lingers has a worker give way to the next one, and linger.
func (w *world) lingers(id int, most time.Duration, workers int) (told []int) {
	w.tb.Helper()
	w.say(id, message{kind: kindRestart, words: []uint64{0, 0}, texts: []string{""}})
	w.helloLingering(id + 1)
	w.say(id+1, message{kind: kindPrepared, texts: []string{"fine"}})
	w.say(id, message{kind: kindHandedOver, words: []uint64{0, uint64(most), uint64(workers)}})
	told = w.told(id + 1)
	w.answer(id + 1)
	w.say(id+1, message{kind: kindReady})
	if p := w.m.active; p == nil || p.id != id+1 || !p.ready {
		w.tb.Fatalf("worker %d has not taken over: %v", id+1, w.lines)
	}
	return told
}

// helloLingering is hello of a worker that knows of lingering.
func (w *world) helloLingering(id int) (told []int) {
	w.say(id, message{kind: kindHello, words: []uint64{protocol, featureAsk | featureOutput | featureLinger}})
	told = w.told(id)
	w.answer(id)
	return told
}

// told returns whom the keeper has told a worker of last that lingers.
func (w *world) told(id int) (pids []int) {
	for _, m := range slices.Backward(w.procs[id].sent) {
		if m.kind != kindLingering {
			continue
		}
		for i := 3; i < len(m.words); i += 4 {
			pids = append(pids, int(m.words[i])-1000)
		}
		return pids
	}
	return nil
}

// askedToEnd reports whether a worker that lingers was asked to end, and by no signal: that might come from anybody, to all processes of the service.
func (w *world) askedToEnd(id int) bool {
	w.tb.Helper()
	for _, line := range w.lines {
		if strings.HasPrefix(line, "signal ") && strings.HasSuffix(line, fmt.Sprintf(" to %d", id)) && !strings.HasPrefix(line, "signal 9 ") {
			w.tb.Errorf("worker %d has got a signal: %s", id, line)
		}
	}
	asked := 0
	for _, m := range w.procs[id].sent {
		if m.kind == kindHandOver {
			asked++
		}
	}
	return asked > 1
}

// The next worker begins at once, and whatever happens to it, the one that lingers goes on, for its time.
func TestLinger(t *testing.T) {
	w := newWorld(t, Config{HandOverTimeout: 5 * time.Second, Watchdog: -1}, 100)
	w.ready(1)
	if got := w.lingers(1, time.Hour, 4); !slices.Equal(got, []int{1}) {
		t.Errorf("told %v", got)
	}
	w.say(1, message{kind: kindExiting})                         // it has nothing more to say
	w.say(1, message{kind: kindDrop, keys: [][2]uint64{{1, 1}}}) // and is not ended for it
	w.m.hungUp(1, w.now)
	w.die(2, Death{Signal: 9})
	w.pass(0)
	if got := w.helloLingering(3); !slices.Equal(got, []int{1}) {
		t.Errorf("the worker after a crash was told %v", got)
	}
	w.say(3, message{kind: kindPrepared, texts: []string{"fine"}})
	w.answer(3)
	w.say(3, message{kind: kindReady})

	// Another binary of the keeper goes on with it.
	s, err := load(w.m.save(map[int]savedConn{1: {fd: 70}, 3: {fd: 71}}), w.m.cfg, 100, w.now)
	if err != nil || len(s.m.lingering) != 1 || s.m.lingering[0].pid != 1001 || s.conns[1].fd != 70 || s.m.lingering[0].endBy.IsZero() {
		t.Fatalf("%+v: %v", s, err)
	}

	w.pass(time.Hour + 4*time.Second)
	if w.procs[1].killed {
		t.Error("ended too early")
	}
	w.pass(2 * time.Second)
	if !w.procs[1].killed {
		t.Error("it lingers for ever")
	}
	w.die(1, Death{Signal: 9})
	if got := w.told(3); got != nil {
		t.Errorf("told %v", got)
	}
	if d := w.m.lastLingered; d.PID != 1001 || w.m.restarts != 1 { // worker 2 died, and nobody else
		t.Errorf("%+v, %d restarts", d, w.m.restarts)
	}
}

// The oldest of too many ends, and whoever does not is killed.
func TestLingerMost(t *testing.T) {
	w := newWorld(t, Config{HandOverTimeout: 5 * time.Second, Watchdog: -1}, 100)
	w.ready(1)
	for id := 1; id <= 4; id++ {
		w.lingers(id, time.Hour, 2)
	}
	for id := 1; id <= 4; id++ {
		if asked := w.askedToEnd(id); asked != (id <= 2) {
			t.Errorf("worker %d is asked to end: %v", id, asked)
		}
	}
	w.die(1, Death{})
	w.pass(6 * time.Second)
	if !w.procs[2].killed || w.procs[3].killed || w.procs[4].killed {
		t.Error("not exactly the second one was killed")
	}
	w.die(2, Death{Signal: 9})
	if got := w.told(5); !slices.Equal(got, []int{3, 4}) {
		t.Errorf("told %v", got)
	}
}

// The keeper ends when those that linger have, which have a while for it. A second signal does not wait.
func TestLingerStop(t *testing.T) {
	for _, how := range []string{"they end", "they do not", "another signal"} {
		w := newWorld(t, Config{HandOverTimeout: 5 * time.Second, Watchdog: -1}, 100)
		w.ready(1)
		w.lingers(1, time.Hour, 4)
		w.m.signal(syscall.SIGTERM, w.now)
		if w.askedToEnd(1) {
			t.Error("asked to end while the flows drain")
		}
		w.say(2, message{kind: kindExiting})
		w.die(2, Death{Code: 3})
		if !w.askedToEnd(1) || w.m.over() {
			t.Errorf("%s: %v", how, w.lines)
		}
		switch how {
		case "they do not":
			w.pass(6 * time.Second)
		case "another signal":
			w.m.signal(syscall.SIGTERM, w.now)
		}
		if w.procs[1].killed != (how != "they end") {
			t.Errorf("%s: killed: %v", how, w.procs[1].killed)
		}
		w.die(1, Death{})
		if !w.m.over() || w.m.exitCode != 3 {
			t.Errorf("%s: over: %v, exit code %d", how, w.m.over(), w.m.exitCode)
		}
	}
}
