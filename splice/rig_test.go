package splice

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"net"
	"os"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/datapath"
	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
)

// patience bounds every wait for something that is about to happen.
const patience = testnet.Patience

// pattern is what all tests send, so that a byte out of place shows.
var pattern = sync.OnceValue(func() *testnet.Pattern { return testnet.NewPattern(7) })

// kind is a kind of connection. open gives both its ends: near is for Copy or
// Relay, far is the test's.
type kind struct {
	name   string
	socket bool // splice sees a stream socket
	open   func(testing.TB) (near, far net.Conn)
}

var (
	tcp  = kind{"tcp", true, func(tb testing.TB) (net.Conn, net.Conn) { return testnet.Pair(tb, "tcp4") }}
	unix = kind{"unix", true, func(tb testing.TB) (net.Conn, net.Conn) { return testnet.Pair(tb, "unix") }}
	pipe = kind{"pipe", false, func(tb testing.TB) (net.Conn, net.Conn) {
		near, far := net.Pipe()
		tb.Cleanup(func() { near.Close(); far.Close() })
		return near, far
	}}
	secure = kind{"tls", false, func(tb testing.TB) (net.Conn, net.Conn) {
		a, b := testnet.Pair(tb, "tcp4")
		near := tls.Server(a, &tls.Config{Certificates: []tls.Certificate{certificate()}})
		far := tls.Client(b, &tls.Config{InsecureSkipVerify: true})
		shaken := make(chan error, 1)
		go func() { shaken <- near.Handshake() }()
		if err := errors.Join(far.Handshake(), <-shaken); err != nil {
			tb.Fatal(err)
		}
		return near, far
	}}
	wrapped = kind{"wrapped", true, func(tb testing.TB) (net.Conn, net.Conn) {
		near, far := testnet.Pair(tb, "tcp4")
		return &reader{Conn: near}, far
	}}
	// hidden says nothing of the socket inside.
	hidden = kind{"hidden", false, func(tb testing.TB) (net.Conn, net.Conn) {
		near, far := testnet.Pair(tb, "unix")
		return struct{ net.Conn }{near}, far
	}}
)

// memory is without a kernel, for tests in a bubble of testing/synctest; either direction can be closed.
var memory = kind{"memory", false, func(tb testing.TB) (net.Conn, net.Conn) {
	upIn, upOut := net.Pipe()
	downIn, downOut := net.Pipe()
	near, far := memoryConn{upIn, downOut}, memoryConn{downIn, upOut}
	tb.Cleanup(func() { near.Close(); far.Close() })
	return near, far
}}

type memoryConn struct {
	net.Conn          // what it reads from
	out      net.Conn // what it writes to
}

func (c memoryConn) Write(p []byte) (int, error) { return c.out.Write(p) }
func (c memoryConn) CloseWrite() error           { return c.out.Close() }
func (c memoryConn) Close() error                { return errors.Join(c.Conn.Close(), c.out.Close()) }

func (c memoryConn) SetDeadline(at time.Time) error {
	return errors.Join(c.Conn.SetDeadline(at), c.out.SetDeadline(at))
}
func (c memoryConn) SetWriteDeadline(at time.Time) error { return c.out.SetDeadline(at) }

// reader is a Wrapper that has read ahead.
type reader struct {
	net.Conn
	ahead []byte
}

func (r *reader) Unwrap() net.Conn { return r.Conn }

func (r *reader) TakeRead() []byte {
	p := r.ahead
	r.ahead = nil
	return p
}

func (r *reader) Read(p []byte) (int, error) {
	if len(r.ahead) > 0 {
		n := copy(p, r.ahead)
		r.ahead = r.ahead[n:]
		return n, nil
	}
	return r.Conn.Read(p)
}

var certificate = sync.OnceValue(func() tls.Certificate {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	if err != nil {
		panic(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private}
})

// line is a way from one kind of connection to another.
type line struct{ src, dst kind }

// lines are the pairs of the tables: those of sockets, and some with an end
// that is none or hides it.
var lines = []line{
	{tcp, tcp}, {unix, tcp}, {tcp, unix}, {unix, unix},
	{wrapped, tcp}, {unix, wrapped}, {hidden, tcp}, {tcp, hidden}, {pipe, unix}, {tcp, pipe}, {tcp, secure}, {secure, tcp},
}

func (l line) String() string { return l.src.name + "-to-" + l.dst.name }

// fast reports whether bulk data must be spliced.
func (l line) fast() bool { return l.src.socket && l.dst.socket && runtime.GOOS == "linux" }

// path fails the test unless t says that bulk went the way it must.
func (l line) path(tb testing.TB, t Transfer) {
	tb.Helper()
	switch {
	case l.fast() && (t.Path != datapath.Splice || t.Why != datapath.WhyNone || t.Spliced == 0):
		tb.Errorf("%+v: want it spliced", t)
	case !l.fast() && (t.Path != datapath.Copy || t.Why == datapath.WhyNone || t.Why == datapath.WhySmall || t.Spliced != 0):
		tb.Errorf("%+v: want it copied, and a reason", t)
	}
}

// stalls are the lines of tests that wait for a reader who does not read, which
// takes time.
var stalls = append(lines[:4:4], line{hidden, tcp}, line{tcp, secure})

// eachLine runs test on every line of some. When the test and its Copy have ended,
// no pipe may be on lease: before, Copy may hold the one whose bytes the test has.
func eachLine(t *testing.T, some []line, test func(*testing.T, *rig)) {
	for _, l := range some {
		t.Run(l.String(), func(t *testing.T) {
			t.Cleanup(func() { noneLeased(t) })
			test(t, newRig(t, l))
		})
	}
}

// noneLeased fails the test if a pipe is on lease.
func noneLeased(tb testing.TB) {
	tb.Helper()
	if n := leased(); n != 0 {
		tb.Errorf("%d pipes still on lease", n)
	}
}

// rig is a Copy with both its connections: bytes go from, src, dst, to.
type rig struct {
	line
	from, src, dst, to net.Conn
	cfg                Config
	live               Live
	counted            *Live // &live, or another rig's
	sent               int64 // by write and push
	received           int64 // by read and drain

	done chan struct{}
	n    int64
	err  error
}

func newRig(tb testing.TB, l line) *rig {
	r := &rig{line: l}
	r.counted = &r.live
	r.src, r.from = l.src.open(tb)
	r.dst, r.to = l.dst.open(tb)
	return r
}

// shrink makes the buffers behind src small, so that a reader who stops is
// soon felt.
func (r *rig) shrink() {
	for _, c := range []net.Conn{r.dst, r.to} {
		if s, ok := c.(interface {
			SetReadBuffer(int) error
			SetWriteBuffer(int) error
		}); ok {
			s.SetReadBuffer(64 << 10)
			s.SetWriteBuffer(64 << 10)
		}
	}
}

// start lets Copy run.
func (r *rig) start(tb testing.TB) {
	r.done = make(chan struct{})
	go func() {
		defer close(r.done)
		r.n, r.err = r.cfg.CopyLive(r.dst, r.src, r.counted)
	}()
	tb.Cleanup(func() {
		for _, c := range []net.Conn{r.src, r.dst, r.from, r.to} {
			c.Close()
		}
		<-r.done
	})
}

// wait returns what Copy did.
func (r *rig) wait(tb testing.TB) (int64, error) {
	tb.Helper()
	select {
	case <-r.done:
	case <-time.After(patience):
		tb.Fatalf("Copy does not end: %+v", r.live.Up())
	}
	return r.n, r.err
}

// write sends n bytes, all of which must be accepted.
func (r *rig) write(tb testing.TB, n int) {
	tb.Helper()
	r.from.SetWriteDeadline(time.Now().Add(patience))
	for n > 0 {
		m, err := r.from.Write(pattern().At(r.sent, min(n, testnet.MaxChunk)))
		if err != nil {
			tb.Fatalf("write at %d: %v", r.sent, err)
		}
		r.sent += int64(m)
		n -= m
	}
}

// feed sends total bytes in chunks, from its own goroutine, and then ends the stream.
func (r *rig) feed(tb testing.TB, total, chunk int) {
	var wg sync.WaitGroup
	wg.Go(func() {
		r.from.SetWriteDeadline(time.Now().Add(patience))
		for at := 0; at < total; {
			n, err := r.from.Write(pattern().At(int64(at), min(chunk, total-at)))
			if at += n; err != nil {
				tb.Errorf("write at %d: %v", at, err)
				return
			}
		}
		if err := endWriting(r.from); err != nil {
			tb.Errorf("end the stream: %v", err)
		}
	})
	tb.Cleanup(wg.Wait)
}

// bulk sends and receives n bytes.
func (r *rig) bulk(tb testing.TB, n int) {
	tb.Helper()
	done := make(chan error, 1)
	at := r.sent
	go func() {
		r.from.SetWriteDeadline(time.Now().Add(patience))
		for end := at + int64(n); at < end; {
			m, err := r.from.Write(pattern().At(at, int(min(256<<10, end-at))))
			if at += int64(m); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	r.read(tb, n)
	if err := <-done; err != nil {
		tb.Fatalf("write at %d: %v", at, err)
	}
	r.sent = at
}

// push sends until nothing is accepted any more: who writes and Copy wait, which holds bytes, and nothing has moved for longer than a TCP receiver delays what
// makes room (40 ms).
func (r *rig) push(tb testing.TB) {
	tb.Helper()
	if r.line.src.name == secure.name {
		r.fillUp(tb) // a deadline breaks a TLS connection for good: crypto/tls, Conn.SetWriteDeadline
		return
	}
	const still = 90 * time.Millisecond
	r.from.SetWriteDeadline(time.Now().Add(patience))
	done := make(chan error, 1)
	go func() { done <- r.pushOn() }()
	last, since := r.live.Up(), time.Now()
	testwait.Until(tb, "nothing moves", func() bool {
		_, pushing := testwait.Goroutines("splice.(*rig).pushOn(")
		_, copying := testwait.Goroutines("splice.(*Config).CopyLive(")
		if now := r.live.Up(); pushing == 0 || copying == 0 || now.Read == now.Written || now != last {
			last, since = now, time.Now()
		}
		return time.Since(since) > still || len(done) > 0
	})
	r.from.SetWriteDeadline(time.Unix(1, 0))
	if err := <-done; !errors.Is(err, os.ErrDeadlineExceeded) {
		tb.Fatalf("push at %d: %v", r.sent, err)
	}
}

// pushOn sends until it fails.
func (r *rig) pushOn() error {
	for {
		n, err := r.from.Write(pattern().At(r.sent, 64<<10))
		if r.sent += int64(n); err != nil {
			return err
		}
	}
}

// fillUp writes until Copy has read all of it, and dst has taken no more for
// longer than a TCP receiver delays what makes room (40 ms). A chunk is what a TLS
// record holds, so that one Read has all of it.
func (r *rig) fillUp(tb testing.TB) {
	tb.Helper()
	const still = 90 * time.Millisecond
	last, since := int64(-1), time.Now()
	for start := time.Now(); time.Since(since) < still; {
		if time.Since(start) > patience {
			tb.Fatalf("%+v: of %d bytes sent, and no end", r.live.Up(), r.sent)
		}
		got := r.live.Up()
		if got.Read == r.sent && got.Written == r.sent {
			r.write(tb, 16<<10)
		}
		if got.Written != last || got.Read != r.sent {
			last, since = got.Written, time.Now()
		}
		time.Sleep(500 * time.Microsecond)
	}
}

// read receives n bytes, and checks them.
func (r *rig) read(tb testing.TB, n int) {
	tb.Helper()
	r.to.SetReadDeadline(time.Now().Add(patience))
	buf := make([]byte, min(n, 256<<10))
	for n > 0 {
		m, err := r.to.Read(buf[:min(n, len(buf))])
		r.check(tb, buf[:m])
		if n -= m; err != nil && n > 0 {
			tb.Fatalf("read at %d: %v, %d bytes missing", r.received, err, n)
		}
	}
}

// drain receives until the stream ends, and checks the bytes.
func (r *rig) drain(tb testing.TB) error {
	tb.Helper()
	r.to.SetReadDeadline(time.Now().Add(patience))
	buf := make([]byte, 256<<10)
	for {
		m, err := r.to.Read(buf)
		r.check(tb, buf[:m])
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (r *rig) check(tb testing.TB, p []byte) {
	tb.Helper()
	if err := pattern().Check(r.received, p); err != nil {
		tb.Fatal(err)
	}
	r.received += int64(len(p))
}

// class is what a caller would branch on. Which of the errors of a reset a
// writer sees depends on the moment.
func class(err error) string {
	var lost *UndeliveredError
	if errors.As(err, &lost) && lost.Bytes <= 0 {
		return "undelivered, but nothing was"
	}
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, os.ErrDeadlineExceeded):
		return "deadline"
	case errors.Is(err, net.ErrClosed), errors.Is(err, io.ErrClosedPipe):
		return "closed"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "reset"
	}
	return err.Error()
}

// lost is the number of bytes that err says were lost.
func lost(err error) int64 {
	var u *UndeliveredError
	if errors.As(err, &u) {
		return u.Bytes
	}
	return 0
}

// endWriting ends the stream that c sends: a half-close where there is one.
func endWriting(c net.Conn) error {
	if err := closeWrite(c); !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	return c.Close()
}

// canReset reports whether a reset can be seen on connections of kind k.
func (k kind) canReset() bool { return k.socket }

// unread makes near's byte wait at far, so that closing far is a reset for a
// Unix socket too.
func unread(tb testing.TB, near net.Conn) {
	tb.Helper()
	if _, err := near.Write([]byte{0}); err != nil {
		tb.Fatal(err)
	}
}

// reset closes far, whose bytes are unread, with a reset.
func reset(far net.Conn) {
	if t, ok := far.(*net.TCPConn); ok {
		t.SetLinger(0)
	}
	far.Close()
}
