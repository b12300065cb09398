package keeper

import (
	"math/rand/v2"
	"os/signal"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
)

// upgradeCatching is upgrade to a worker that waits for signals before it is ready.
func (w *testWorker) upgradeCatching(binary string) *testWorker {
	r := w.rig
	r.Helper()
	w.do("handler")
	w.order(command{Do: "upgrade-async", Text: binary})
	next := r.worker()
	next.do("catch")
	next.send(command{Do: "prepared"})
	w.do("wait-hand-over")
	w.do("handed-over")
	w.send(command{Do: "exit"})
	next.reply()
	next.do("ready")
	return next
}

// A signal that ends the keeper while it executes its new binary, before that has handlers, reaches the worker as SIGTERM.
func TestStopWhileKeeperExecutes(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(sig.String(), func(t *testing.T) {
			if signal.Ignored(sig) {
				t.Skip("a shell has started this in the background, so that the keeper ignores it, too, until it has a handler")
			}
			t.Parallel()
			r := newRig(t, func(c *childConfig) { c.Config.KeepSelf = false })
			w := r.runningWorker().upgradeCatching(r.binary("halts"))
			r.event("no handlers yet")
			sys.Signal(r.cmd.Process.Pid, sig)
			if got := w.do("signal").Text; got != "terminated" {
				t.Error(got)
			}
			if code := r.exit(); code != -1 {
				t.Errorf("the keeper was not ended by the signal, but with code %d", code)
			}
		})
	}
}

// A keeper that is killed at another time leaves its worker alone.
func TestWorkerGoesOnWithoutKeeper(t *testing.T) {
	r := newRig(t, func(c *childConfig) { c.Config.KeepSelf = false })
	w := r.runningWorker().upgradeCatching(r.binary("next"))
	r.event("keeper-upgraded")
	w.learns(func(u Upgrade) bool { return u.Keeper == "upgraded" })
	sys.Signal(r.cmd.Process.Pid, syscall.SIGKILL)
	w.do("lost")
	sys.Signal(w.pid, syscall.SIGHUP)
	if got := w.do("signal").Text; got != "hangup" {
		t.Error(got)
	}
}

// SIGTERM at any moment of the keeper's own upgrade reaches the worker.
func TestStopDuringKeeperUpgrade(t *testing.T) {
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	var longest time.Duration
	rounds := 15
	if testing.Short() { // an emulated processor takes a minute or two for each
		rounds = 5
	}
	for i := range rounds {
		r := newRig(t, func(c *childConfig) { c.Config.KeepSelf = false })
		w := r.runningWorker().upgradeCatching(r.binary("next"))
		began := time.Now()
		if i < 3 { // how long it takes
			r.event("keeper-upgraded")
			longest = max(longest, time.Since(began))
		} else {
			spin := time.Duration(random.Int64N(int64(longest)))
			for time.Since(began) < spin { // any moment will do
				runtime.Gosched()
			}
		}
		sys.Signal(r.cmd.Process.Pid, syscall.SIGTERM)
		if got := w.do("signal").Text; got != "terminated" {
			t.Fatalf("seed %d, round %d: %s", seed, i, got)
		}
	}
}
