package dgram

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testnet"
)

// TestNoAllocation sends and receives batches with all the metadata there is.
func TestNoAllocation(t *testing.T) {
	if testnet.RaceEnabled {
		t.Skip("the race detector allocates")
	}
	everything := Config{ECN: true, Local: true, Time: true, Errors: true, Pace: true}
	for _, cfg := range []Config{{}, {NoGSO: true, NoGRO: true}, everything} {
		for _, kind := range []string{"v4", "v6", "dual-to-v4", "connected-v6"} {
			for _, n := range []int{1, 64, 512} {
				t.Run(fmt.Sprintf("%+v/%s/n=%d", cfg, kind, n), func(t *testing.T) {
					p := newPath(t, kind)
					l := level{cfg: cfg, open: bestDriver}
					send, recv := l.conn(t, p.send), l.conn(t, p.recv)
					out, in := make([]Message, n), MakeMessages(min(n, 64))
					for i := range out {
						out[i] = Message{Buf: payload(i, 20), Addr: p.to, ECN: ECT0}
					}
					for i := range in {
						in[i].Control = make([]byte, 0, 64)
					}
					if allocs := testing.AllocsPerRun(20, func() {
						mustWrite(t, send, out)
						for got := 0; got < n; {
							k, err := recv.ReadBatch(in)
							if err != nil {
								t.Fatal(err)
							}
							for i := range in[:k] {
								for range in[i].Datagrams() {
									got++
								}
							}
						}
					}); allocs != 0 {
						t.Errorf("%v allocations a batch", allocs)
					}
				})
			}
		}
	}
}

// TestNothingIsPinned: the garbage collector may take a caller's buffers when the call is over.
func TestNothingIsPinned(t *testing.T) {
	p := newPath(t, "v4")
	send, recv := bestLevel.conn(t, p.send), bestLevel.conn(t, p.recv)
	freed := make(chan string, 2)
	func() {
		out, in := make([]byte, 100), make([]byte, MaxSize)
		runtime.AddCleanup(&out[0], func(s string) { freed <- s }, "write buffer")
		runtime.AddCleanup(&in[0], func(s string) { freed <- s }, "read buffer")
		mustWrite(t, send, []Message{{Buf: out, Addr: p.to}})
		if _, err := recv.ReadBatch([]Message{{Buf: in}}); err != nil {
			t.Fatal(err)
		}
	}()
	for range 2 {
		runtime.GC()
		select {
		case <-freed:
		case <-time.After(patience):
			t.Fatal("a buffer is still referenced")
		}
	}
	runtime.KeepAlive(send)
	runtime.KeepAlive(recv)
}
