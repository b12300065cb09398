//go:build linux

// Package world is what a daemon is tried in: clients and upstreams that know the owner of every byte, the daemon's process that is
// killed and upgraded between them, and what must be true in the end. A program makes a World, gives it places, which are listeners of
// the daemon with the upstreams behind them, starts the load and the daemon, does something to it, and prints the tally.
package world

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

// Place is a listener of the relay, and what is behind it.
type Place struct {
	Name     string
	Network  string // of the listener: tcp, unix, udp, unixgram
	Addr     string
	Upstream string // network of the upstream
	Echo     bool   // the relay itself is the upstream
	Sends    int    // version of the PROXY header that the client sends; 0: none
	Gets     int    // version of the PROXY header that the upstream gets; 0: none
	Own      bool   // each datagram client has an IP address that none had before
	Slow     bool   // its bandwidth is limited, so that it takes long to drain
	Changing bool   // the members of its group change
}

// unix reports whether the socket of a side is a Unix socket.
func (p *Place) unix(side int) bool {
	network := p.Network
	if side == 1 || p.Echo {
		network = p.Upstream
	}
	return network == "unix"
}

// fits reports whether flows of a shape go through the place.
func (p *Place) fits(s *Shape) bool {
	switch {
	case s.reset && (p.unix(0) || p.unix(1) || p.Echo):
		return false // a Unix socket has no resets, and nobody sees those of an echo
	case p.Slow && s.talk && s.client.sizes[1] > kib:
		return false
	}
	return true
}

// World is the load: clients and upstreams, and what they know of each other.
type World struct {
	seed      uint64
	KeepAfter time.Duration // when flows settle
	Slack     time.Duration // how much later than that they are sure to have settled
	Idle      time.Duration // after how long a datagram flow that carries nothing ends; 0: never
	dir       string        // for the sockets of clients
	Places    []*Place
	Rate      float64       // bytes per second that all flows together may send, each write counting writeCost more; 0: any number
	haste     time.Duration // flows live so many times shorter; 0: as long as their shapes say
	Tally     *tally
	Kills     kills

	rateMu sync.Mutex
	free   time.Time // when the next write may begin

	stopping    atomic.Bool
	stop        chan struct{} // closed when stopping
	end         time.Time     // when the run ends, for elders
	nextFlow    atomic.Uint64
	flows       sync.Map // number -> *flow
	datagrams   sync.Map // number -> *datagramFlow
	locals      sync.Map // number of a datagram flow -> address of its client
	ports       ports    // where the relay's datagrams come from
	firstAnswer atomic.Int64
	Open        atomic.Int64
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

func New(seed uint64, out io.Writer, dir string) *World {
	return &World{seed: seed, Tally: &tally{Out: &lockedWriter{to: out}}, stop: make(chan struct{}), dir: dir, end: time.Now().Add(365 * 24 * time.Hour)}
}

func (w *World) Random(id, what uint64) *rand.Rand {
	return rand.New(rand.NewPCG(w.seed, id<<8|what))
}

// Sleep returns after d, or when the run stops.
func (w *World) Sleep(d time.Duration) {
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
func (w *World) allow(n int) {
	if w.Rate == 0 || w.stopping.Load() {
		return
	}
	w.rateMu.Lock()
	now := time.Now()
	if w.free.Before(now) {
		w.free = now
	}
	wait := w.free.Sub(now)
	w.free = w.free.Add(time.Duration(float64(n+writeCost) / w.Rate * float64(time.Second)))
	w.rateMu.Unlock()
	w.Sleep(wait)
}

// Serve accepts the relay's connections at an upstream, which may be a member of a registry.
func (w *World) Serve(l net.Listener, header int, at *Endpoint) {
	w.closers = append(w.closers, l)
	w.upstreams.Go(func() {
		for {
			conn, err := l.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil {
				w.Tally.Fault(OtherFaults, "upstream %v: %v", l.Addr(), err)
				return
			}
			w.upstreams.Go(func() { w.upstream(conn, header, at) })
		}
	})
}

// upstream plays the upstream of one flow. A connection that ends before its preface is a client's
// loss, which the client reports.
func (w *World) upstream(conn net.Conn, header int, at *Endpoint) {
	defer conn.Close()
	conn.SetReadDeadline(time.Now().Add(Patience))
	says, said := "", int64(0)
	if header > 0 {
		var err error
		if says, said, err = readHeader(conn, header); err != nil {
			if errors.Is(err, errHeader) {
				w.Tally.Fault(headersWrong, "PROXY header: %v", err)
			}
			return
		}
	}
	want, id, err := ReadPreface(conn)
	if err == nil && want != wantFlow {
		w.Tally.Count(bytesWrong, prefaceSize)
		w.Tally.show("an upstream got something else than the preface of a flow")
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
		w.Tally.Count(bytesDuplicate, prefaceSize)
		w.Tally.show("%v: its preface came a second time", f)
		return
	}
	defer close(f.upstreamDone)
	if header > 0 && says != f.header {
		w.Tally.Fault(headersWrong, "%v: the PROXY header says %q, not %q", f, says, f.header)
	}
	if at != nil {
		f.at.Store(at)
		w.took(at, f, f.start)
	}
	f.relaying.Store(time.Now().UnixNano())
	f.upstreamGood = w.stream(f, 1, conn, said+prefaceSize).run()
}

// make makes a flow of a shape through a place.
func (w *World) make(s *Shape, via *Place) *flow {
	id := w.nextFlow.Add(1)
	if id >= pattern.MaxFlow {
		panic("more flows than there are numbers")
	}
	f := &flow{id: id, shape: s, via: via, start: time.Now(), upstreamDone: make(chan struct{})}
	r := w.Random(id, 3)
	f.stop = f.start.Add(pauseBetween(r, s.life) / max(w.haste, 1))
	if s.elder {
		f.stop = w.end
	}
	for d := range f.directions {
		f.directions[d].total.Store(-1)
		f.directions[d].mark.Store(-1)
	}
	w.flows.Store(id, f)
	w.Tally.Count(FlowsMade, 1)
	return f
}

// run plays the client of one flow, waits for its upstream, and reports whether all went well.
func (w *World) run(f *flow) bool {
	w.Open.Add(1)
	defer w.Open.Add(-1)
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
		case <-time.After(2 * Patience):
			w.Tally.Fault(FlowsLost, "%v: its upstream has not ended", f)
			return false
		}
	} else if good && !f.via.Echo {
		w.Tally.Fault(OtherFaults, "%v: it ended well, but no upstream had it", f)
		return false
	}
	switch {
	case f.proven.Load() > 0 && f.at.Load() != nil:
		w.Tally.Count(flowsOutlived, 1)
	case f.proven.Load() > 0:
		w.Tally.Count(FlowsKept, 1)
	}
	if good {
		w.Tally.Count(flowsWhole, 1)
		w.expect(f)
	}
	return good
}

// dial connects to the relay and says the preface. No client may be turned away.
func (w *World) dial(f *flow) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, f.via.Network, f.via.Addr)
	for errors.Is(err, syscall.EAGAIN) && ctx.Err() == nil { // a Unix listener's queue is full
		time.Sleep(time.Millisecond)
		conn, err = new(net.Dialer).DialContext(ctx, f.via.Network, f.via.Addr)
	}
	if errors.Is(err, syscall.ECONNRESET) && w.excused(f) {
		w.early(f) // it had been accepted
		return nil, err
	}
	if err != nil {
		w.Tally.Fault(clientsRefused, "%v: %v", f, err)
		return nil, err
	}
	n, _ := w.opened.LoadOrStore(f.via.Name, new(atomic.Int64))
	n.(*atomic.Int64).Add(1)
	f.local = conn.LocalAddr()
	var first []byte
	if f.via.Sends > 0 {
		first = madeUpHeader(f)
	} else if f.via.Network == "tcp" {
		f.header = f.local.String()
	}
	if !f.via.Echo {
		first = append(first, Preface(wantFlow, f.id)...)
	}
	conn.SetWriteDeadline(time.Now().Add(Patience))
	if _, err := conn.Write(first); err != nil {
		w.close(f, 0, up, 0, err)
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// expect notes what the record of a flow must say.
func (w *World) expect(f *flow) {
	if f.via.Network != "tcp" {
		return
	}
	up, down := f.directions[up].read.Load(), f.directions[down].read.Load()
	if f.via.Echo {
		up, down = f.directions[0].total.Load(), f.directions[0].read.Load()
	} else {
		up += prefaceSize
	}
	client := f.local.String()
	if f.via.Sends > 0 {
		client = f.header
	}
	w.recordsMu.Lock()
	defer w.recordsMu.Unlock()
	w.records = append(w.records, expectedRecord{client: "tcp://" + client, up: up, down: down, text: f.String()})
}

// Load starts n flows of each shape at each place that fits, one after the other in each.
func (w *World) Load(n int, which func(*Shape, *Place) bool) {
	for _, s := range shapes {
		for _, p := range w.Places {
			if p.Network != "tcp" && p.Network != "unix" || !p.fits(s) || which != nil && !which(s, p) {
				continue
			}
			for range n {
				w.clients.Go(func() {
					for !w.stopping.Load() {
						w.run(w.make(s, p))
						w.Sleep(10 * time.Millisecond)
					}
				})
			}
		}
	}
}

// NewClients makes a new stream client and a new datagram client every so often.
func (w *World) NewClients(every time.Duration) {
	var streams, datagrams []*Place
	for _, p := range w.Places {
		switch p.Network {
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
		for made := 0; !w.stopping.Load(); w.Sleep(every) {
			for due := int(time.Since(begin) / every); made < due; made++ {
				i := made
				if len(streams) > 0 {
					one(func() {
						if w.run(w.make(newcomer, streams[i%len(streams)])) {
							w.Tally.Count(newClients, 1)
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
func (w *World) died(number int64, at time.Time) {
	w.flows.Range(func(_, v any) bool {
		v.(*flow).died(number)
		return true
	})
	w.datagrams.Range(func(_, v any) bool {
		v.(*datagramFlow).died(number)
		return true
	})
	w.Kills.gone(number, at)
}

// Finish ends all flows, each in its own way, and waits for them.
func (w *World) Finish() error {
	w.stopping.Store(true)
	close(w.stop)
	done := make(chan struct{})
	go func() { w.clients.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-time.After(3 * Patience):
		return fmt.Errorf("%d flows have not ended", w.Open.Load())
	}
}

// close closes the upstreams.
func (w *World) CloseUpstreams() {
	for _, c := range w.closers {
		c.Close()
	}
	w.upstreams.Wait()
	os.RemoveAll(w.dir)
}

// Try makes one new client at a place, which must be served.
func (w *World) Try(p *Place) { w.run(w.make(newcomer, p)) }
