package relay

import (
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testnet"
)

// BenchmarkSTW measures what busy loops do to the rest of a Go program: how
// long the world takes to stop. A loop that waits in a raw system call keeps
// its P, and the runtime must preempt it with a signal; a polite one gives it
// up. ReadMemStats does nothing but stop the world, read, and start it again;
// runtime.GC stops it twice in each cycle. The load comes from child processes;
// with engine=none it passes this process by, so that the CPUs are as busy.
func BenchmarkSTW(b *testing.B) {
	for _, load := range []string{"messages", "bulk"} {
		for _, engine := range []string{"none", "polite", "dedicated"} {
			b.Run("load="+load+"/engine="+engine, func(b *testing.B) { benchmarkSTW(b, load, engine) })
		}
	}
}

func benchmarkSTW(b *testing.B, load, engine string) {
	loops := max(1, runtime.NumCPU()-1)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(loops + 1))
	server, client := testnet.Script{Echo: true}, testnet.Script{Send: -1, SendChunk: 64, Recv: -1}
	if load == "bulk" {
		server, client = testnet.Script{Discard: true, RecvChunk: 1 << 20}, testnet.Script{Send: -1, SendChunk: 1 << 20, Recv: -1}
	}
	to, _ := testnet.StartServer(b, "tcp4", server)
	var e *Engine
	if engine != "none" {
		var err error
		if e, err = New(Config{Loops: loops, Dedicated: engine == "dedicated"}); err != nil {
			b.Fatal(err)
		}
		defer e.Close()
		up := fromNet(to)
		l, err := e.Listen(Addr{Network: TCP, AddrPort: loopback}, ListenConfig{Hooks: Hooks{Upstream: func(*Flow, int) *Addr { return up }}})
		if err != nil {
			b.Fatal(err)
		}
		to = toNet(l.Addr())
	}
	for range 2 * loops {
		p := testnet.StartDialer(b, to, client)
		defer p.Stop()
	}
	time.Sleep(300 * time.Millisecond) // until the load is there
	moved := func() (n int64) {
		if e != nil {
			s := e.Stats()
			sum := s.Total()
			n = sum.BytesWritten
		}
		return n
	}
	var stats, collections, pauses []time.Duration
	var m runtime.MemStats
	runtime.GC()
	before, began := moved(), time.Now()
	pace := time.NewTicker(time.Millisecond)
	defer pace.Stop()
	b.ResetTimer()
	for range b.N {
		start := time.Now()
		runtime.ReadMemStats(&m)
		stats = append(stats, time.Since(start))
		start = time.Now()
		runtime.GC()
		collections = append(collections, time.Since(start))
		<-pace.C
	}
	b.StopTimer()
	b.ReportMetric(float64(moved()-before)/time.Since(began).Seconds()/1e6, "MB/s")
	runtime.ReadMemStats(&m)
	for i := range min(b.N, len(m.PauseNs), int(m.NumGC)) {
		pauses = append(pauses, time.Duration(m.PauseNs[(int(m.NumGC)-1-i)%len(m.PauseNs)]))
	}
	for what, d := range map[string][]time.Duration{"readmemstats": stats, "gc": collections, "gcpause": pauses} {
		slices.Sort(d)
		b.ReportMetric(float64(d[len(d)/2])/1e3, what+"-p50-us")
		b.ReportMetric(float64(d[len(d)*95/100])/1e3, what+"-p95-us")
	}
	b.ReportMetric(0, "ns/op")
}
