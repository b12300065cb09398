package keeper

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testnet"
)

func TestSignals(t *testing.T) {
	r := newRig(t)
	w := r.worker()
	// Before the worker is ready, a signal would end it.
	sys.Signal(r.cmd.Process.Pid, syscall.SIGHUP)
	sys.Signal(r.cmd.Process.Pid, syscall.SIGUSR1)
	sys.Signal(r.cmd.Process.Pid, syscall.SIGHUP)
	w.do("catch")
	w.do("prepared")
	w.do("ready")
	got := []string{w.do("signal").Text, w.do("signal").Text}
	if s := strings.Join(got, " "); s != "hangup user defined signal 1" && s != "user defined signal 1 hangup" {
		t.Errorf("the worker got %q", s)
	}
	sys.Signal(r.cmd.Process.Pid, syscall.SIGHUP)
	if s := w.do("signal").Text; s != "hangup" {
		t.Errorf("the worker got %q", s)
	}
	sys.Signal(r.cmd.Process.Pid, syscall.SIGTERM)
	if s := w.do("signal").Text; s != "terminated" {
		t.Errorf("the worker got %q", s)
	}
	r.event("notify STOPPING=1")
	sys.Signal(r.cmd.Process.Pid, syscall.SIGINT)
	if s := w.do("signal").Text; s != "interrupt" {
		t.Errorf("the worker got %q", s)
	}
	w.send(command{Do: "exit", N: 7})
	if code := r.exit(); code != 7 {
		t.Errorf("exit code %d", code)
	}
}

func TestExitCodes(t *testing.T) {
	t.Run("the first worker refuses", func(t *testing.T) {
		r := newRig(t)
		w := r.worker()
		w.send(command{Do: "exit", N: 6})
		if code := r.exit(); code != 6 {
			t.Errorf("exit code %d", code)
		}
	})
	t.Run("unplanned", func(t *testing.T) {
		r := newRig(t)
		w := r.runningWorker()
		w.send(command{Do: "exit", N: 0})
		w = r.runningWorker()
		if w.Reason != Crash || w.Died.Code != 0 || w.Died.Signal != 0 {
			t.Errorf("%+v", w.Start)
		}
	})
	t.Run("while no worker runs", func(t *testing.T) {
		r := newRig(t, func(c *childConfig) { c.Config.Backoff, c.Config.MaxBackoff = time.Hour, time.Hour })
		w := r.runningWorker()
		w.kill()
		w = r.worker()
		w.kill()
		r.event("start-delayed")
		sys.Signal(r.cmd.Process.Pid, syscall.SIGTERM)
		if code := r.exit(); code != 128+15 {
			t.Errorf("exit code %d", code)
		}
	})
	t.Run("no binary", func(t *testing.T) {
		r := newRig(t, func(c *childConfig) { c.Config.Binary = "/nonexistent" })
		if code := r.exit(); code != 1 {
			t.Errorf("exit code %d", code)
		}
	})
}

func TestHangingWorker(t *testing.T) {
	r := newRig(t, func(c *childConfig) { c.Config.Watchdog = 300 * time.Millisecond })
	w := r.worker()
	w.do("prepared")
	w.send(command{Do: "ready-mute"}) // it may be killed before it answers
	r.event("worker-killed", "watchdog")
	w = r.worker()
	if w.Died.Why != "watchdog" || w.Died.Signal != 9 {
		t.Errorf("%+v", w.Start)
	}
	if s := w.Died.String(); s != "signal 9 (watchdog)" {
		t.Error(s)
	}
}

func TestWorkerWithoutConnect(t *testing.T) {
	r := newRig(t, func(c *childConfig) {
		c.Config.Binary, c.Config.ConnectTimeout = strings.Replace(c.Config.Binary, "/worker", "/mute", 1), 100*time.Millisecond
	}, func(c *childConfig) {
		os.Link(strings.Replace(c.Config.Binary, "/mute", "/worker", 1), c.Config.Binary)
	})
	for range 3 {
		r.event("worker-killed", "not connected in time")
	}
}

func TestKeeperDies(t *testing.T) {
	r := newRig(t)
	w := r.runningWorker()
	w.order(command{Do: "pipe", Key: 7, Text: "hello"})
	w.send(command{Do: "lost"})
	r.cmd.Process.Kill()
	w.reply()
	// It goes on; what it asks for from now on fails.
	w.send(command{Do: "pipe", Key: 8})
	var x reply
	if err := w.in.Decode(&x); err != nil || !strings.Contains(x.Err, "has gone") {
		t.Errorf("%+v, %v", x, err)
	}
	w.order(command{Do: "fds"})
}

// The keeper is killed at each step of a worker's start.
func TestKeeperDiesAtEachStep(t *testing.T) {
	for step := range 3 {
		r := newRig(t)
		w := r.worker()
		switch step {
		case 1:
			w.do("prepared")
		case 2:
			w.do("prepared")
			w.do("ready")
		}
		w.send(command{Do: "lost"})
		r.cmd.Process.Kill()
		w.reply()
	}
}

func TestNotify(t *testing.T) {
	r := newRig(t, func(c *childConfig) { c.Config.NotifyEvery = 10 * time.Millisecond })
	w := r.runningWorker()
	r.event("notify READY=1")
	w.order(command{Do: "notify", Text: "STATUS=fine\nMAINPID=1\nFDSTORE=1\nRELOADING=1"})
	if line := r.event("notify STATUS"); line != "notify STATUS=fine RELOADING=1" {
		t.Error(line)
	}
	r.event("notify WATCHDOG=1")
	r.event("notify WATCHDOG=1")
}

// A worker that has no room for all descriptors gets the others, and is told which ones it has not.
func TestNoRoomInWorker(t *testing.T) {
	r := newRig(t, func(c *childConfig) { c.LimitAfterCrash = 200 })
	w := r.runningWorker()
	w.order(command{Do: "pipe", Key: 1, Label: "early", Text: "important"})
	w.order(command{Do: "many", Key: 1000, N: 150})
	w.kill()
	w = r.worker()
	w.Start = w.do("prepared").Start
	held := w.do("held")
	if held.FDs != 151 || held.Missing < 50 || held.Missing > 100 || w.Missing != held.Missing {
		t.Errorf("%d items, %d missing, %d told", held.FDs, held.Missing, w.Missing)
	}
	r.event("problem", "no room")
	if got := w.order(command{Do: "read", Key: 1}); got.Text != "important" {
		t.Errorf("the labelled pipe has %q", got.Text)
	}
	w.do("ready")
	w.order(command{Do: "drop", Key: 1000, N: 150})
	r.settled("descriptors of the keeper", func() bool { return countFDs(r.cmd.Process.Pid) < 40 })
}

// A keeper that has fewer descriptors than it thought: what does not arrive is refused, the rest is held.
func TestNoRoomInKeeper(t *testing.T) {
	r := newRig(t, func(c *childConfig) { c.KeeperLimit = 150 })
	w := r.runningWorker()
	w.order(command{Do: "many", Key: 1000, N: 100})
	w.rig.settled("refused items", func() bool { return w.do("stats").Stats.Refused > 0 })
	open := countFDs(r.cmd.Process.Pid)
	refused := int(w.do("stats").Stats.Refused)
	w.order(command{Do: "drop", Key: 1000, N: 10})
	r.settled("descriptors of the keeper", func() bool { return countFDs(r.cmd.Process.Pid) == open-20 })
	w.order(command{Do: "pipe", Key: 1, Text: "room again"})
	w.order(command{Do: "drop", Key: 1010, N: 20}) // the keeper needs a few to start a worker
	w.kill()
	w = r.runningWorker()
	if held := w.do("held"); held.FDs != 100-refused-30+1 || held.Missing != 0 {
		t.Errorf("%d items, %d refused, %d missing", held.FDs, refused, held.Missing)
	}
}

// A keeper at its limits refuses at once, and takes more when there is room again.
func TestKeeperFull(t *testing.T) {
	r := newRig(t, func(c *childConfig) { c.Config.MaxItems = 100 })
	w := r.runningWorker()
	w.order(command{Do: "many", Key: 1000, N: 100})
	w.send(command{Do: "pipe", Key: 1})
	var x reply
	if w.in.Decode(&x); x.Err != ErrFull.Error() {
		t.Errorf("%+v", x)
	}
	w.order(command{Do: "drop", Key: 1000, N: 1})
	w.rig.settled("room for one more", func() bool { s := w.do("stats").Stats; return s.Items == 99 && s.MaxItems == 100 })
	w.order(command{Do: "pipe", Key: 1})
}

// What a worker believes to be held comes to the truth when nothing changes any more, far from all limits.
func TestTotalsAtRest(t *testing.T) {
	r := newRig(t)
	w := r.runningWorker()
	before := w.do("stats").Stats
	for _, want := range []int{5, 2} {
		if want == 5 {
			w.order(command{Do: "many", Key: 1000, N: 5})
		} else {
			w.order(command{Do: "drop", Key: 1000, N: 3})
		}
		r.settled("the totals", func() bool {
			s := w.do("stats").Stats
			return s.Items == before.Items+want && s.Descriptors == before.Descriptors+2*want
		})
	}
}

// 200 kills at random moments, while the worker holds and drops. What the keeper had is complete each time:
// every item with both descriptors, and everything that a Flush has returned nil for.
func TestRandomKills(t *testing.T) {
	testnet.AlsoWithoutRace(t)
	n := 200
	if testing.Short() {
		n = 20
	}
	r := newRig(t, func(c *childConfig) { c.Config.Good = -1 }) // no back-off
	w := r.worker()
	kept := uint64(0)
	for i := range n {
		w.do("prepared")
		if held := w.do("held"); uint64(held.FDs) < kept || held.Missing != 0 {
			t.Fatalf("kill %d: %d items, %d missing, of %d", i, held.FDs, held.Missing, kept)
		}
		w.do("ready")
		if i%20 == 0 { // begin again
			w.order(command{Do: "drop-held"})
			kept = 0
		}
		w.send(command{Do: "churn", Key: uint64(i) << 32})
		// Each line that the worker has written was written after Flush had returned nil.
		for n := 0; ; n++ {
			if n == i*7%23 {
				w.kill()
			}
			var x reply
			if w.in.Decode(&x) != nil {
				break
			}
			kept++
		}
		w = r.worker()
	}
	if w.Total != n {
		t.Errorf("%d restarts", w.Total)
	}
	w.do("prepared")
	w.do("ready")
	w.do("held")
	w.do("drop-held")
	r.settled("descriptors of the keeper", func() bool { return countFDs(r.cmd.Process.Pid) < 40 })
}

// The kernel prefers every worker to its keeper when memory runs out, from the start on: as much as the worker before it was preferred,
// which knew better.
func TestPreferredVictim(t *testing.T) {
	r := newRig(t)
	own := oomScore(r.cmd.Process.Pid)
	w := r.runningWorker()
	if got := oomScore(w.pid); got != min(own+100, 1000) {
		t.Errorf("the keeper's score is %d, that of its first worker %d", own, got)
	}
	want := min(own+250, 1000)
	setScore := func(pid int) {
		if err := os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid), []byte(strconv.Itoa(want)), 0); err != nil {
			t.Fatal(err)
		}
	}
	setScore(w.pid)
	for _, how := range []string{"was upgraded", "died", "died again"} {
		if how == "was upgraded" {
			w = w.upgrade(r.binary("next"))
		} else {
			w.kill()
			w = r.runningWorker()
		}
		if got := oomScore(w.pid); got != want {
			t.Errorf("the worker before it %s with score %d, this one has %d", how, want, got)
		}
	}
	if got := oomScore(r.cmd.Process.Pid); got != own {
		t.Errorf("the keeper's own score was %d, and is %d", own, got)
	}
}
