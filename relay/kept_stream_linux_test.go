package relay

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testnet"
)

// scriptServer plays a script on each connection; reports are in the channel.
func scriptServer(t *testing.T, network string, s testnet.Script) (net.Addr, chan testnet.Report) {
	t.Helper()
	l := testnet.Listen(t, network)
	reports := make(chan testnet.Report, 100)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { reports <- testnet.Play(c, s) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		wg.Wait()
	})
	return l.Addr(), reports
}

func urlOf(a net.Addr) string {
	if u, ok := a.(*net.UnixAddr); ok {
		return Addr{Network: Unix, Path: u.Name}.String()
	}
	return "tcp://" + a.String()
}

// settled waits until n flows are held.
func (k *keptTable) settled(n int) {
	k.t.Helper()
	k.expect(holdFlow, n)
}

// A stream that is carried by a sequence of processes, each of which is killed at a random moment,
// arrives as it was sent.
func TestStreamsOutliveProcesses(t *testing.T) {
	const size = 64 << 20
	for _, p := range pairs {
		for _, chunk := range []int{64 << 10, 700} {
			t.Run(fmt.Sprintf("%s-%s/chunk=%d", p[0], p[1], chunk), func(t *testing.T) {
				size := int64(size)
				if chunk < 1000 {
					size /= 16
				}
				k := newKeptTable(t)
				up, down := testnet.Script{Send: size, SendSeed: 1, SendChunk: chunk, Recv: size, RecvSeed: 2}, testnet.Script{Send: size, SendSeed: 2, SendChunk: chunk, Recv: size, RecvSeed: 1}
				upstream, reports := scriptServer(t, p[1], down)
				o := keptOrder{Loops: 1, Listen: []string{keptPlace(t, p[0])}, Upstream: urlOf(upstream)}
				proc := k.start(o)
				o.Listen = proc.urls()
				own := make(chan testnet.Report, 1)
				c := testnet.Dial(t, toNet(proc.addrs[0]))
				go func() { own <- testnet.Play(c, up) }()
				k.settled(1)
				var total Restored
				kills, done := 0, 0
				var results []testnet.Report
				for done < 2 {
					select {
					case r := <-reports:
						results = append(results, r)
						done++
						continue
					case r := <-own:
						results = append(results, r)
						done++
						continue
					case <-time.After(time.Duration(1+rand.IntN(40)) * time.Millisecond):
					case rec := <-proc.records:
						if rec.Cause != CauseEnd {
							t.Fatalf("the flow has ended: %+v", rec)
						}
						continue
					}
					if done > 0 {
						continue
					}
					proc.kill()
					kills++
					proc = k.start(o)
					r := proc.Restored
					total.add(&r)
					if r.TotalLost() > 0 {
						t.Fatalf("after %d kills: %+v", kills, r)
					}
				}
				for _, r := range results {
					if r.Err != "" || r.Received != size {
						t.Errorf("%+v", r)
					}
				}
				k.settled(0)
				t.Logf("%d kills, %d found bytes in the process, %d in all", kills, total.Holding, total.Bytes)
			})
		}
	}
}
