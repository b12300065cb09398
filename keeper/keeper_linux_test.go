package keeper

import (
	"syscall"
	"testing"
)

// What a worker held is there for the next one after kill -9, contents included.
func TestCrash(t *testing.T) {
	r := newRig(t)
	w := r.runningWorker()
	if w.Reason != First || w.Total != 0 {
		t.Errorf("first start: %+v", w.Start)
	}
	w.order(command{Do: "pipe", Key: 7, Text: "hello"})
	w.order(command{Do: "pipe", Key: 8, Label: "early", Text: "labelled"})
	for i := range 3 {
		w.kill()
		w = r.worker()
		if held := w.do("held"); len(held.Items) != 1 || held.Items[0].Label != "early" {
			t.Fatalf("before Prepared: %+v", held)
		}
		w.Start = w.do("prepared").Start
		if w.Reason != Crash || w.Died.Signal != int(syscall.SIGKILL) || w.Total != i+1 || w.Downtime <= 0 {
			t.Errorf("start %d: %+v", i, w.Start)
		}
		if held := w.do("held"); len(held.Items) != 2 || len(held.Items[0].FDs) != 2 || held.Items[0].Key != [2]uint64{8, 1} {
			t.Fatalf("after Prepared: %+v", held)
		}
		w.do("ready")
	}
	if got := w.order(command{Do: "read", Key: 7}); got.Text != "hello" {
		t.Errorf("the pipe has %q", got.Text)
	}
	w.order(command{Do: "drop", Key: 7})
	w.kill()
	w = r.runningWorker()
	if held := w.do("held"); len(held.Items) != 1 {
		t.Fatalf("after Drop: %+v", held)
	}
	w.send(command{Do: "exit", N: 5, Text: "exiting"})
	if code := r.exit(); code != 5 {
		t.Errorf("exit code %d", code)
	}
}

// A worker that only ends what it has, and holds nothing new, does not call Flush.
func TestDropWithoutFlush(t *testing.T) {
	r := newRig(t)
	w := r.runningWorker()
	before := countFDs(r.cmd.Process.Pid)
	w.order(command{Do: "many", Key: 100, N: 10, Label: "close"})
	r.settled("items are held", func() bool { return countFDs(r.cmd.Process.Pid) > before })
	w.order(command{Do: "drop", Key: 100, N: 10, Label: "no flush"})
	r.settled("the keeper has closed its duplicates", func() bool { return countFDs(r.cmd.Process.Pid) <= before })
}
