package tlsconn

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"math/big"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/simkernel"
	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/pool"
)

func TestMain(m *testing.M) { testnet.Main(m) }

var certificate = sync.OnceValue(func() tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), nil)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(24 * time.Hour)}
	der, err := x509.CreateCertificate(nil, template, template, &key.PublicKey, key)
	if err != nil {
		panic(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
})

// pattern is what each end sends, from another place on.
var pattern = sync.OnceValue(func() []byte {
	b := make([]byte, 1<<20)
	rand.NewChaCha8([32]byte{1}).Read(b)
	return b
})

// wires is a kernel of two connected sockets, 0 and 1.
type wires struct {
	sys.Kernel
	draw  func() byte           // decides about a call; nil: it does all that it is asked for
	inbox [2]inbox              // what the socket receives
	short bool                  // a receive may be short of what there is
	tls   [2]*simkernel.Records // of the sockets that have kTLS
}

type inbox struct {
	bytes []byte
	room  int
	ended bool
	event bool // the receiver has not been told of something
	cut   bool // what is sent is lost
}

func (w *wires) luck() byte {
	if w.draw == nil {
		return 255
	}
	return w.draw()
}

func (w *wires) Recv(fd int, p []byte) (int, sys.Errno) {
	y := &w.inbox[fd]
	if w.tls[fd] != nil {
		n, _, e := w.record(fd, p, false, false)
		return n, e
	}
	n := min(len(p), len(y.bytes))
	switch d := w.luck(); {
	case d < 20:
		return 0, sys.EINTR
	case n == 0 && y.ended:
		return 0, 0
	case n == 0:
		return 0, sys.EAGAIN
	case w.short && d < 120:
		n = min(n, 1+int(d)*int(d)/4)
	}
	copy(p, y.bytes[:n])
	y.bytes = y.bytes[n:]
	return n, 0
}

func (w *wires) Send(fd int, p []byte) (int, sys.Errno) {
	y := &w.inbox[1-fd]
	n := len(p)
	switch d := w.luck(); {
	case d < 20:
		return 0, sys.EINTR
	case d < 60 || w.draw != nil && len(y.bytes) >= y.room:
		return 0, sys.EAGAIN
	case d < 150:
		n = min(n, 1+int(d)*int(d))
	}
	if r := w.tls[fd]; r != nil {
		p, n = r.Seal(sys.RecordData, p[:n])
		w.put(fd, p)
		return n, 0
	}
	w.put(fd, p[:n])
	return n, 0
}

// put has the peer of a socket receive something.
func (w *wires) put(fd int, p []byte) {
	y := &w.inbox[1-fd]
	if !y.cut {
		y.bytes = append(y.bytes, p...)
	}
	y.event = true
}

func (w *wires) GiveTLS(fd int, out, in *sys.TLSKeys) (bool, sys.Errno) {
	if w.luck() < 20 {
		return false, sys.ENOENT
	}
	w.tls[fd] = simkernel.NewRecords(out, in)
	return w.tls[fd] != nil, map[bool]sys.Errno{true: sys.EOPNOTSUPP}[w.tls[fd] == nil]
}

// record reads from a socket with kTLS.
func (w *wires) record(fd int, p []byte, any, peek bool) (int, uint8, sys.Errno) {
	y, r := &w.inbox[fd], w.tls[fd]
	d := w.luck()
	if d < 20 {
		return 0, 0, sys.EINTR
	}
	y.bytes = y.bytes[r.Open(y.bytes):]
	if w.short && d < 120 {
		p = p[:min(len(p), 1+int(d)*int(d)/4)]
	}
	n, kind, e := r.Read(p, any, peek)
	if e == sys.EAGAIN && y.ended {
		return 0, 0, 0
	}
	return n, kind, e
}

func (w *wires) RecvRecord(fd int, p []byte, peek bool) (int, uint8, sys.Errno) {
	return w.record(fd, p, true, peek)
}

func (w *wires) SendRecord(fd int, kind uint8, p []byte) sys.Errno {
	switch d := w.luck(); {
	case d < 20:
		return sys.EINTR
	case d < 60:
		return sys.EAGAIN
	}
	p, _ = w.tls[fd].Seal(kind, p)
	w.put(fd, p)
	return 0
}

func (w *wires) Poll(fd int, events int16) int16 {
	if w.draw != nil && len(w.inbox[1-fd].bytes) >= w.inbox[1-fd].room {
		events &^= sys.PollOut
	}
	return events
}

// end is a connection with what its owner knows.
type end struct {
	*Conn
	fd             int
	sent, got      int // bytes
	next           int // how many the next Send begins with
	begun          bool
	finished, over bool // has said that it ends; has seen the other's end
	failed         sys.Errno
	odd            bool // it was told that the socket has ended: a short read says nothing
}

// pairOfConns is two connections of one loop.
type pairOfConns struct {
	t       *testing.T
	w       *wires
	env     *Env
	end     [2]*end
	damaged [2]bool // of what an end receives
}

// runConn plays a schedule: whatever is sent arrives, once and in order; an end that is not the peer's is none.
func runConn(t *testing.T, data []byte) {
	if len(data) < 2 {
		return
	}
	kind, data := data[0], data[1:]
	w := &wires{short: kind&1 != 0}
	for i := range w.inbox {
		w.inbox[i].room = 1 << (6 + kind>>4)
	}
	luck := rand.New(rand.NewPCG(uint64(data[0]), uint64(len(data))))
	w.draw = func() byte { return byte(luck.Uint32()) }
	version := uint16(tls.VersionTLS12 + uint16(kind>>1&1))
	server := &tls.Config{Certificates: []tls.Certificate{certificate()}, MinVersion: version, DynamicRecordSizingDisabled: kind&4 != 0}
	client := &tls.Config{InsecureSkipVerify: true, MaxVersion: version, CurvePreferences: []tls.CurveID{tls.X25519}, DynamicRecordSizingDisabled: kind&4 != 0}
	p := &pairOfConns{t: t, w: w, env: &Env{Kernel: w, Buffers: new(pool.Buffers)}}
	if data[0]&1 != 0 {
		server.KeyLogWriter, client.KeyLogWriter = Marked{}, Marked{}
		client.ClientSessionCache = tls.NewLRUClientSessionCache(1)
	}
	p.end = [2]*end{{Conn: Server(server), fd: 0}, {Conn: Client(client), fd: 1}}
	p.handshake(kind&8 != 0)
	for len(data) >= 2 {
		p.step(data[0], int(data[1]))
		data = data[2:]
	}
	p.settle()
	for _, e := range p.end {
		e.Free(p.env)
		if e.Memory() != 0 {
			t.Errorf("%d bytes are left", e.Memory())
		}
	}
	gets, puts := uint64(0), uint64(0)
	for _, c := range p.env.Buffers.Stats().Classes {
		gets, puts = gets+c.Gets, puts+c.Puts
	}
	if gets != puts {
		t.Errorf("%d buffers taken, %d given back", gets, puts)
	}
}

func (p *pairOfConns) handshake(preface bool) {
	header := []byte("a header\n")
	turns, limit := make(chan *end, 2), make(chan struct{}, 1)
	if preface {
		p.end[1].Prepend(header)
	} else {
		header = nil
	}
	left, waits := 2, [2]bool{}
	for _, e := range p.end {
		e.Start(&Computing{Limit: limit}, func(bool) { turns <- e })
	}
	computing := 2
	for left > 0 {
		for computing > 0 {
			e := <-turns
			computing--
			if waits[e.fd] = !e.Over(); !waits[e.fd] {
				left--
				if e.Err != nil {
					p.t.Fatal(e.Err)
				}
			}
		}
		for _, e := range p.end {
			switch {
			case e.Over() && !waits[e.fd]:
				e.Flush(p.env, e.fd)
			case e.Exchange(p.env, e.fd, false) == 0:
				computing++
				waits[e.fd] = false
				e.Resume()
			}
			if y := &p.w.inbox[0]; e.fd == 1 && len(header) > 0 {
				n := min(len(header), len(y.bytes))
				if !bytes.Equal(y.bytes[:n], header[:n]) {
					p.t.Fatalf("%q instead of the header", y.bytes[:n])
				}
				y.bytes, header = y.bytes[n:], header[n:]
			}
			p.poison()
			if computing > 0 {
				break // Over may not be asked
			}
		}
	}
}

// poison makes sure that nobody keeps memory that is shared.
func (p *pairOfConns) poison() {
	for _, b := range [][]byte{p.env.in, p.env.out[:cap(p.env.out)]} {
		for i := range b {
			b[i] = 0xdb
		}
	}
}

func (p *pairOfConns) step(op byte, arg int) {
	e := p.end[op&1]
	switch size := arg * arg * arg / 100; op >> 1 % 8 {
	case 0, 1:
		p.recv(e, 1+size)
	case 2, 3:
		p.send(e, 1+size)
	case 4:
		p.event(e)
		e.Careful(arg%2 == 0)
		if arg >= 128 && e.failed == 0 {
			if _, now := e.Givable(); now && e.next == 0 {
				e.Give(p.w, e.fd)
			}
		}
	case 5:
		e.Flush(p.env, e.fd)
	case 6:
		if arg < 40 {
			p.finish(e)
		}
	case 7:
		y := &p.w.inbox[e.fd]
		switch {
		case arg < 10 && len(y.bytes) > 0:
			y.bytes[len(y.bytes)*arg/10] ^= 1
			p.damaged[e.fd] = true
		case arg < 20: // the peer's connection ends where it is
			y.bytes = y.bytes[:len(y.bytes)*(arg-10)/10]
			y.cut, y.ended, y.event = true, true, true
		}
	}
	p.poison()
}

// event tells an end what its socket has for it.
func (p *pairOfConns) event(e *end) {
	if y := &p.w.inbox[e.fd]; y.event {
		y.event, e.Drained, e.odd = false, false, y.ended
	}
	if !e.Offered() {
		e.Flush(p.env, e.fd)
	}
}

func (p *pairOfConns) send(e *end, size int) {
	if e.begun || e.failed != 0 {
		return
	}
	if e.next == 0 {
		e.next = min(size, len(pattern())/2-e.sent)
	}
	if e.next == 0 {
		return
	}
	from := e.sent + e.fd*len(pattern())/2
	n, errno := e.Send(p.env, e.fd, pattern()[from:from+e.next])
	switch {
	case errno == sys.EAGAIN:
	case errno == Invalid && e.failed == 0 && p.damaged[e.fd]:
		e.failed = errno // it has sent an alert
	case errno != 0 || n <= 0 || n > e.next:
		p.t.Fatalf("sent %d of %d: %v %v", n, e.next, errno, e.Err)
	default:
		e.sent, e.next = e.sent+n, 0
	}
}

func (p *pairOfConns) finish(e *end) {
	if e.finished || e.failed != 0 || e.Offered() || e.InKernel() && e.next > 0 {
		return
	}
	e.begun = true
	e.finished = e.Finish(p.env, e.fd) == 0
	if e.finished {
		p.w.inbox[1-e.fd].ended, p.w.inbox[1-e.fd].event = true, true
	}
}

func (p *pairOfConns) recv(e *end, size int) {
	peer := p.end[1-e.fd]
	buf := make([]byte, size)
	e.Turn()
	n, errno := e.Recv(p.env, e.fd, !p.w.short, e.odd, buf)
	y := p.w.inbox[e.fd]
	switch {
	case e.over && (n != 0 || errno != e.failed):
		p.t.Fatalf("%d bytes and %v after the end", n, errno)
	case n > 0 && errno == 0:
		from := e.got + peer.fd*len(pattern())/2
		if most := peer.sent + peer.next; e.got+n > most || !bytes.Equal(buf[:n], pattern()[from:from+n]) {
			p.t.Fatalf("other bytes than were sent, from %d of %d on", e.got, most)
		}
		e.got += n
	case errno == sys.EAGAIN:
	case errno == 0:
		if e.got != peer.sent || !peer.begun {
			p.t.Fatalf("an end after %d bytes of %d", e.got, peer.sent)
		}
		e.over = true
	case errno == Truncated && y.cut, errno == Invalid && (p.damaged[e.fd] || p.damaged[1-e.fd]), errno == Truncated && p.damaged[e.fd] && y.ended:
		e.over, e.failed = true, errno
	default:
		p.t.Fatalf("received %d, %v, %v", n, errno, e.Err)
	}
}

// settle makes the kernel do what it is asked for, until both have ended.
func (p *pairOfConns) settle() {
	p.w.draw = nil
	for range 10_000 {
		quiet := true
		for _, e := range p.end {
			p.event(e)
			before, now := e.got, e.over
			p.recv(e, 100_000)
			if e.next > 0 {
				p.send(e, e.next)
			}
			if e.next == 0 {
				p.finish(e)
			}
			p.poison()
			quiet = quiet && before == e.got && now == e.over && !p.w.inbox[0].event && !p.w.inbox[1].event
		}
		if quiet {
			break
		}
	}
	for _, e := range p.end {
		y := p.w.inbox[e.fd]
		if !e.over && !p.damaged[e.fd] && (!y.cut || y.ended) && p.end[1-e.fd].failed == 0 {
			p.t.Errorf("end %d waits for ever, with %d bytes of %d", e.fd, e.got, p.end[1-e.fd].sent)
		}
		if e.over && e.failed == 0 && e.got != p.end[1-e.fd].sent {
			p.t.Errorf("end %d has %d bytes of %d", e.fd, e.got, p.end[1-e.fd].sent)
		}
	}
}

// FuzzConn: two connections of one loop over sockets that do less than they are asked for, and may be cut or damaged.
func FuzzConn(f *testing.F) {
	for kind := range 16 {
		f.Add([]byte{byte(kind | kind<<4), 4, 200, 0, 0, 255, 9, 3, 1, 90, 5, 200, 0, 90, 12, 1, 13, 2})
		f.Add([]byte{byte(kind | kind<<4), 4, 100, 6, 250, 1, 250, 15, 15, 1, 30})
		f.Add([]byte{byte(kind | kind<<4), 5, 100, 14, 5, 0, 250, 4, 40, 1, 30})
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) <= 300 {
			runConn(t, data)
		}
	})
}

// The same with random schedules, which are others in each run.
func TestConns(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	for i := range 25 {
		data := make([]byte, 2+r.IntN(200))
		for j := range data {
			data[j] = byte(r.Uint32())
		}
		if !t.Run(fmt.Sprintf("seed=%d/%d", seed, i), func(t *testing.T) { runConn(t, data) }) {
			t.Fatalf("schedule %#v, a seed for FuzzConn", data)
		}
	}
}
