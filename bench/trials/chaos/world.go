//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/penstock/penstock/bench/internal/pattern"
)

// place is a listener of the relay, and what is behind it.
type place struct {
	name     string
	network  string // of the listener: tcp, unix, udp, unixgram
	addr     string
	upstream string // network of the upstream
	echo     bool   // the relay itself is the upstream
	sends    int    // version of the PROXY header that the client sends; 0: none
	gets     int    // version of the PROXY header that the upstream gets; 0: none
	own      bool   // each datagram client has an IP address that none had before
	slow     bool   // its bandwidth is limited, so that it takes long to drain
	changing bool   // the members of its group change
}

// unix reports whether the socket of a side is a Unix socket.
func (p *place) unix(side int) bool {
	network := p.network
	if side == 1 || p.echo {
		network = p.upstream
	}
	return network == "unix"
}

// fits reports whether flows of a shape go through the place.
func (p *place) fits(s *shape) bool {
	switch {
	case s.reset && (p.unix(0) || p.unix(1) || p.echo):
		return false // a Unix socket has no resets, and nobody sees those of an echo
	case p.slow && s.talk && s.client.sizes[1] > kib:
		return false
	}
	return true
}

// world is the load: clients and upstreams, and what they know of each other.
type world struct {
	seed      uint64
	keepAfter time.Duration // when flows settle
	slack     time.Duration // how much later than that they are sure to have settled
	idle      time.Duration // after how long a datagram flow that carries nothing ends; 0: never
	dir       string        // for the sockets of clients
	places    []*place
	rate      float64       // bytes per second that all flows together may send, each write counting writeCost more; 0: any number
	haste     time.Duration // flows live so many times shorter; 0: as long as their shapes say
	tally     *tally
	kills     kills

	rateMu sync.Mutex
	free   time.Time // when the next write may begin

	stopping    atomic.Bool
	stop        chan struct{} // closed when stopping
	end         time.Time     // when the run ends, for elders
	nextFlow    atomic.Uint64
	flows       sync.Map // number -> *flow
	datagrams   sync.Map // number -> *datagramFlow
	locals      sync.Map // number of a datagram flow -> address of its client
	firstAnswer atomic.Int64
	open        atomic.Int64
	opened      sync.Map // place name -> *atomic.Int64: connections that clients made

	clients   sync.WaitGroup
	upstreams sync.WaitGroup
	closers   []io.Closer

	recordsMu sync.Mutex
	records   []expectedRecord
}

// expectedRecord is what the access log must say of a flow.
type expectedRecord struct {
	client   string
	up, down int64
	text     string
}

func newWorld(seed uint64, out io.Writer, dir string) *world {
	return &world{seed: seed, tally: &tally{out: out}, stop: make(chan struct{}), dir: dir, end: time.Now().Add(365 * 24 * time.Hour)}
}

func (w *world) random(id, what uint64) *rand.Rand {
	return rand.New(rand.NewPCG(w.seed, id<<8|what))
}

// sleep returns after d, or when the run stops.
func (w *world) sleep(d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-w.stop:
	}
}

// writeCost is what a write, and what follows from it, costs in comparison with its bytes.
const writeCost = 8 * kib

// allow waits until n bytes may be written. When the run stops it lets everything pass.
func (w *world) allow(n int) {
	if w.rate == 0 || w.stopping.Load() {
		return
	}
	w.rateMu.Lock()
	now := time.Now()
	if w.free.Before(now) {
		w.free = now
	}
	wait := w.free.Sub(now)
	w.free = w.free.Add(time.Duration(float64(n+writeCost) / w.rate * float64(time.Second)))
	w.rateMu.Unlock()
	w.sleep(wait)
}

// serve accepts the relay's connections at an upstream, which may be a member of a registry.
func (w *world) serve(l net.Listener, header int, at *endpoint) {
	w.closers = append(w.closers, l)
	w.upstreams.Go(func() {
		for {
			conn, err := l.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil {
				w.tally.count(otherFaults, 1)
				w.tally.fault("upstream %v: %v", l.Addr(), err)
				return
			}
			w.upstreams.Go(func() { w.upstream(conn, header, at) })
		}
	})
}

// upstream plays the upstream of one flow. A connection that ends before its preface is a client's
// loss, which the client reports.
func (w *world) upstream(conn net.Conn, header int, at *endpoint) {
	defer conn.Close()
	conn.SetReadDeadline(time.Now().Add(patience))
	says, said := "", int64(0)
	if header > 0 {
		var err error
		if says, said, err = readHeader(conn, header); err != nil {
			if errors.Is(err, errHeader) {
				w.tally.count(headersWrong, 1)
				w.tally.fault("PROXY header: %v", err)
			}
			return
		}
	}
	id, err := readPreface(conn)
	if errors.Is(err, errPreface) {
		w.tally.count(bytesWrong, prefaceSize)
		w.tally.fault("an upstream got something else than the preface of a flow")
		return
	}
	if err != nil {
		return
	}
	v, ok := w.flows.Load(id)
	if !ok {
		return // its client has gone
	}
	f := v.(*flow)
	if !f.taken.CompareAndSwap(false, true) {
		w.tally.count(bytesDuplicate, prefaceSize)
		w.tally.fault("%v: its preface came a second time", f)
		return
	}
	defer close(f.upstreamDone)
	if want := f.header; header > 0 && says != want {
		w.tally.count(headersWrong, 1)
		w.tally.fault("%v: the PROXY header says %q, not %q", f, says, want)
	}
	if at != nil {
		f.at.Store(at)
		w.took(at, f, f.start)
	}
	f.relaying.Store(time.Now().UnixNano())
	f.upstreamGood = w.stream(f, 1, conn, said+prefaceSize).run()
}

// make makes a flow of a shape through a place.
func (w *world) make(s *shape, via *place) *flow {
	id := w.nextFlow.Add(1)
	if id >= pattern.MaxFlow {
		panic("more flows than there are numbers")
	}
	f := &flow{id: id, shape: s, via: via, start: time.Now(), upstreamDone: make(chan struct{})}
	r := w.random(id, 3)
	f.stop = f.start.Add(pauseBetween(r, s.life) / max(w.haste, 1))
	if s.elder {
		f.stop = w.end
	}
	for d := range f.directions {
		f.directions[d].total.Store(-1)
		f.directions[d].mark.Store(-1)
	}
	w.flows.Store(id, f)
	w.tally.count(flowsMade, 1)
	return f
}

// run plays the client of one flow, waits for its upstream, and reports whether all went well.
func (w *world) run(f *flow) bool {
	w.open.Add(1)
	defer w.open.Add(-1)
	defer w.flows.Delete(f.id)
	conn, err := w.dial(f)
	if err != nil {
		return false
	}
	good := w.stream(f, 0, conn, 0).run()
	if f.taken.Load() {
		select {
		case <-f.upstreamDone:
			good = good && f.upstreamGood
		case <-time.After(2 * patience):
			w.tally.count(flowsLost, 1)
			w.tally.fault("%v: its upstream has not ended", f)
			return false
		}
	} else if good && !f.via.echo {
		w.tally.count(otherFaults, 1)
		w.tally.fault("%v: it ended well, but no upstream had it", f)
		return false
	}
	switch {
	case f.proven.Load() > 0 && f.at.Load() != nil:
		w.tally.count(flowsOutlived, 1)
	case f.proven.Load() > 0:
		w.tally.count(flowsKept, 1)
	}
	if good {
		w.tally.count(flowsWhole, 1)
		w.expect(f)
	}
	return good
}

// dial connects to the relay and says the preface. No client may be turned away.
func (w *world) dial(f *flow) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, f.via.network, f.via.addr)
	for errors.Is(err, syscall.EAGAIN) && ctx.Err() == nil { // a Unix listener's queue is full
		time.Sleep(time.Millisecond)
		conn, err = new(net.Dialer).DialContext(ctx, f.via.network, f.via.addr)
	}
	if errors.Is(err, syscall.ECONNRESET) && w.excused(f) {
		w.early(f) // it had been accepted
		return nil, err
	}
	if err != nil {
		w.tally.count(clientsRefused, 1)
		w.tally.fault("%v: %v", f, err)
		return nil, err
	}
	n, _ := w.opened.LoadOrStore(f.via.name, new(atomic.Int64))
	n.(*atomic.Int64).Add(1)
	f.local = conn.LocalAddr()
	var first []byte
	if f.via.sends > 0 {
		first = madeUpHeader(f)
	} else if f.via.network == "tcp" {
		f.header = f.local.String()
	}
	if !f.via.echo {
		first = append(first, f.preface()...)
	}
	conn.SetWriteDeadline(time.Now().Add(patience))
	if _, err := conn.Write(first); err != nil {
		w.close(f, 0, up, 0, err)
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// expect notes what the record of a flow must say.
func (w *world) expect(f *flow) {
	if f.via.network != "tcp" {
		return
	}
	up, down := f.directions[up].read.Load(), f.directions[down].read.Load()
	if f.via.echo {
		up, down = f.directions[0].total.Load(), f.directions[0].read.Load()
	} else {
		up += prefaceSize
	}
	client := f.local.String()
	if f.via.sends > 0 {
		client = f.header
	}
	w.recordsMu.Lock()
	defer w.recordsMu.Unlock()
	w.records = append(w.records, expectedRecord{client: "tcp://" + client, up: up, down: down, text: f.String()})
}

// load starts n flows of each shape at each place that fits, one after the other in each.
func (w *world) load(n int, which func(*shape, *place) bool) {
	for _, s := range shapes {
		for _, p := range w.places {
			if p.network != "tcp" && p.network != "unix" || !p.fits(s) || which != nil && !which(s, p) {
				continue
			}
			for range n {
				w.clients.Go(func() {
					for !w.stopping.Load() {
						w.run(w.make(s, p))
						w.sleep(10 * time.Millisecond)
					}
				})
			}
		}
	}
}

// newClients makes a new stream client and a new datagram client every so often.
func (w *world) newClients(every time.Duration) {
	var streams, datagrams []*place
	for _, p := range w.places {
		switch p.network {
		case "tcp", "unix":
			streams = append(streams, p)
		case "udp":
			datagrams = append(datagrams, p)
		}
	}
	room := make(chan struct{}, 400) // more would only keep each other waiting once the relay is back
	one := func(f func()) {
		select {
		case room <- struct{}{}:
			w.clients.Go(func() { f(); <-room })
		default: // as many are at it as may be
		}
	}
	w.clients.Go(func() {
		begin := time.Now()
		for made := 0; !w.stopping.Load(); w.sleep(every) {
			for due := int(time.Since(begin) / every); made < due; made++ {
				i := made
				if len(streams) > 0 {
					one(func() {
						if w.run(w.make(newcomer, streams[i%len(streams)])) {
							w.tally.count(newClients, 1)
						}
					})
				}
				if len(datagrams) > 0 {
					one(func() { w.newDatagramClient(datagrams[i%len(datagrams)]) })
				}
			}
		}
	})
}

// died tells all flows that the worker is dead.
func (w *world) died(number int64, at time.Time) {
	w.flows.Range(func(_, v any) bool {
		v.(*flow).died(number)
		return true
	})
	w.datagrams.Range(func(_, v any) bool {
		v.(*datagramFlow).died(number)
		return true
	})
	w.kills.gone(number, at)
}

// finish ends all flows, each in its own way, and waits for them.
func (w *world) finish() error {
	w.stopping.Store(true)
	close(w.stop)
	done := make(chan struct{})
	go func() { w.clients.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-time.After(3 * patience):
		return fmt.Errorf("%d flows have not ended", w.open.Load())
	}
}

// close closes the upstreams.
func (w *world) closeUpstreams() {
	for _, c := range w.closers {
		c.Close()
	}
	w.upstreams.Wait()
	os.RemoveAll(w.dir)
}
