package keeper

import (
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
)

// An item of two descriptors takes at most 100 bytes of the keeper's memory.
func TestMemoryOfItems(t *testing.T) {
	heap := func() int64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	for _, n := range []int{9_000, 50_000, 100_000} {
		before := heap()
		tab := newTable()
		for i := range n {
			tab.add([2]uint64{4<<56 | uint64(i), 1}, "", []int{2 * i, 2*i + 1})
		}
		each := (heap() - before) / int64(n)
		t.Logf("%d items: %d bytes each", n, each)
		if each > 100 {
			t.Errorf("%d items: %d bytes each", n, each)
		}
		runtime.KeepAlive(tab)
	}
}

const manyItems = 9_000

// 9,000 items of two descriptors in a worker and a keeper that may have 20,000 each.
func TestManyItems(t *testing.T) {
	if n := sys.DescriptorLimit(); n < 2*manyItems+1000 {
		t.Skipf("RLIMIT_NOFILE is %d", n)
	}
	r := newRig(t)
	w := r.runningWorker()
	held := w.order(command{Do: "many", Key: 1 << 32, N: manyItems, Label: "close"})
	for range 3 {
		began := time.Now()
		w.kill()
		w = r.worker()
		w.Start = w.do("prepared").Start
		all := time.Since(began)
		if got := w.do("held"); got.FDs != manyItems || got.Missing != 0 {
			t.Fatalf("%d items, %d missing", got.FDs, got.Missing)
		}
		w.do("ready")
		t.Logf("held in %v, killed, started and given back in %v; keeper: %s", held.Took, all, memoryOf(t, r.cmd.Process.Pid))
	}
	w.do("drop-held")
	r.settled("descriptors of the keeper", func() bool { return countFDs(r.cmd.Process.Pid) < 40 })
}

// memoryOf returns what a process has in memory.
func memoryOf(tb testing.TB, pid int) string {
	text, err := os.ReadFile("/proc/" + itoa(pid) + "/status")
	if err != nil {
		tb.Fatal(err)
	}
	var found []string
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "VmRSS") || strings.HasPrefix(line, "RssAnon") {
			found = append(found, strings.Join(strings.Fields(line), " "))
		}
	}
	return strings.Join(found, ", ")
}

// BenchmarkHold measures an item of two descriptors, out to the keeper and back to the next worker, in processor
// time of both processes. The start of a worker that gets nothing is subtracted.
func BenchmarkHold(b *testing.B) {
	const n = 8_000
	r := newRig(b, func(c *childConfig) { c.Config.Good = -1 })
	w := r.runningWorker()
	restart := func() time.Duration {
		before := cpuOf(b, r.cmd.Process.Pid)
		w.kill()
		w = r.runningWorker()
		w.do("held")
		return cpuOf(b, r.cmd.Process.Pid) - before + cpuOf(b, w.pid)
	}
	var nothing time.Duration
	for range 10 {
		nothing += restart() / 10
	}
	var out, back time.Duration
	items := 0
	for b.Loop() {
		before := cpuOf(b, r.cmd.Process.Pid) + cpuOf(b, w.pid)
		w.order(command{Do: "same", Key: 1 << 32, N: n})
		out += cpuOf(b, r.cmd.Process.Pid) + cpuOf(b, w.pid) - before
		back += restart() - nothing
		w.do("drop-held")
		items += n
	}
	b.ReportMetric(float64(out.Nanoseconds())/float64(items), "ns-out/item")
	b.ReportMetric(float64(back.Nanoseconds())/float64(items), "ns-back/item")
}

// cpuOf returns the processor time of a process.
func cpuOf(tb testing.TB, pid int) (d time.Duration) {
	tasks, _ := filepath.Glob("/proc/" + itoa(pid) + "/task/*/schedstat")
	for _, p := range tasks {
		if text, err := os.ReadFile(p); err == nil {
			ns, _ := strconv.ParseInt(strings.Fields(string(text))[0], 10, 64)
			d += time.Duration(ns)
		}
	}
	if d == 0 {
		tb.Skip("no schedstat")
	}
	return d
}
