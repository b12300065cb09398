package tlsconn

import (
	"bytes"
	"crypto/tls"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/penstock/penstock/pool"
)

// Handshakes of many clients at once leave a CPU to others, such as the event loops, whenever one of them is to compute.
func TestHandshakesLetOthersGo(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const n = 200
	w := new(wires)
	env := &Env{Kernel: w, Buffers: new(pool.Buffers)}
	waits := make(chan bool, 1)
	client := Client(&tls.Config{InsecureSkipVerify: true})
	client.Start(&Computing{Limit: make(chan struct{}, 1)}, func(over bool) { waits <- over })
	<-waits
	client.Exchange(env, 1, false) // it sends its ClientHello
	client.Abort()
	<-waits
	hello := bytes.Clone(w.inbox[0].bytes)

	limit, over := make(chan struct{}, 1), make(chan struct{}, n)
	cfg := &tls.Config{Certificates: []tls.Certificate{certificate()}}
	var left atomic.Int64
	left.Store(n)
	var all []*Conn
	for range n {
		c := Server(cfg)
		c.Feed(hello)
		all = append(all, c)
		c.Start(&Computing{Limit: limit}, func(end bool) {
			if end {
				over <- struct{}{}
			} else {
				left.Add(-1)
			}
		})
	}
	most := int64(0)
	for left.Load() > 0 {
		before := left.Load()
		runtime.Gosched()
		most = max(most, before-left.Load())
	}
	if most > n/5 {
		t.Errorf("up to %d handshakes compute before another goroutine has its turn", most)
	}
	for _, c := range all {
		c.Abort()
		<-over
	}
}
