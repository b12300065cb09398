package main

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
)

// The kernel kills the worker because its control group is out of memory. The flow goes on, and the daemon says who
// it was; of a worker that anybody else kills, it does not.
func TestOOMKiller(t *testing.T) {
	g := newMemoryGroup(t, 96<<20)
	dir := shortDir(t)
	c := &configured{dir: dir, file: filepath.Join(dir, "penstock.yaml")}
	c.write(t, `
keeper: {keep-after: 0, healthy-after: 0}
listeners: {echo: {listen: 'tcp://127.0.0.1:0', to: 'echo:'}}
`)
	c.begin(t, g.command(binary, "run", "-c", c.file))
	k := &kept{configured: c}
	k.endWorker(t)
	testwait.Until(t, "the API answers", k.answers)
	flow := testnet.Dial(t, k.at("echo"))
	mustPing(t, flow)
	k.settled(1)

	testwait.Until(t, "the worker is first in the order", func() bool { // whoever else is large
		worker := k.worker()
		return worker != 0 && os.WriteFile("/proc/"+strconv.Itoa(worker)+"/oom_score_adj", []byte("1000"), 0) == nil
	})
	hog := g.command("tail", "/dev/zero") // it looks for the end of a line
	if err := hog.Start(); err != nil {
		t.Fatal(err)
	}
	testwait.For(func() bool { return g.oomKills() > 0 })
	hog.Process.Kill()
	hog.Wait()
	if w := k.started(1); w.Cause != "signal 9 (the kernel's OOM killer)" || w.TotalLost() != 0 {
		t.Errorf("%+v", w)
	}
	mustPing(t, flow)

	k.crash() // meanwhile the hog itself may have been killed, too
	k.crash()
	s, err := k.admin.Status(k.ctx())
	if err != nil {
		t.Fatal(err)
	}
	if w := s.Keeper.Last; w.Cause != "signal 9" || w.TotalLost() != 0 {
		t.Errorf("%+v", w)
	}
	mustPing(t, flow)
}
