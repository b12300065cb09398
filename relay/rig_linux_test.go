package relay

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/feature"
	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testkernel"
	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/pool"
	"github.com/penstock/penstock/relay/stats"
)

// patience bounds every wait for what must happen soon.
const patience = testnet.Patience

// rig is an engine on a kernel that counts and fails. When its test ends the
// engine is closed, and everything must balance.
type rig struct {
	t       *testing.T
	k       *testkernel.Kernel
	e       *Engine
	records chan Record

	mu  sync.Mutex
	all []Record
}

func newRig(t *testing.T, cfg Config) *rig {
	t.Helper()
	for _, p := range []*feature.Probe{feature.Splice, feature.ReusePort, feature.EpollExclusive} {
		testnet.Need(t, p)
	}
	testnet.CheckLeaks(t)
	if cfg.Loops == 0 {
		cfg.Loops = 2
	}
	r := &rig{t: t, k: testkernel.New(), records: make(chan Record, 10_000)}
	e, err := newEngine(cfg, r.k)
	if err != nil {
		t.Fatal(err)
	}
	r.e = e
	t.Cleanup(r.close)
	return r
}

// checkPools finds what flows have not given back.
func (r *rig) checkPools() {
	for name, x := range map[string]pool.Stats{
		"early states": r.e.streams.early.Stats(), "adoptions": r.e.streams.adoptions.Stats(), "settings": r.e.datagrams.settings.Stats(),
	} {
		if x.Gets != x.Puts {
			r.t.Errorf("%s: %d taken, %d given back", name, x.Gets, x.Puts)
		}
	}
}

// unbalanced says what the flows of an engine have not given back to the budget of descriptors, or twice, once none is left: what is taken
// then are idle pipes, sockets that rest, and what loops take ahead.
func unbalanced(e *Engine) error {
	var want int64
	var wrong []string
	for i, d := range e.descriptors.all {
		want += d.ahead + d.resting.Load()
		if n := d.promised.Load(); n != d.ahead {
			wrong = append(wrong, fmt.Sprintf("descriptors of loop %d: %d promised, %d ahead", i, n, d.ahead))
		}
	}
	if p := e.streams.pipes; p != nil {
		want += 2 * p.Stats().Open
	}
	if taken := e.descriptors.taken(); taken != want {
		wrong = append(wrong, fmt.Sprintf("%d descriptors are taken, instead of %d", taken, want))
	}
	if wrong == nil {
		return nil
	}
	return errors.New(strings.Join(wrong, "; "))
}

// checkDescriptors balances the budget of descriptors of an engine that is closed.
func checkDescriptors(t *testing.T, e *Engine) {
	t.Helper()
	if err := unbalanced(e); err != nil {
		t.Error(err)
	}
	for i, d := range e.descriptors.all {
		if n := d.resting.Load(); n != 0 {
			t.Errorf("%d sockets of loop %d rest", n, i)
		}
	}
}

// close closes the engine, unless the test has, and balances it.
func (r *rig) close() {
	r.e.Close()
	t, s := r.t, r.e.Stats()
	sum := s.Total()
	if s.Flows() != 0 || s.PipesLeased != 0 || s.PipesOpen != 0 || r.k.OpenPipes() != 0 {
		t.Errorf("left: %d flows, %d pipes on lease, %d open", s.Flows(), s.PipesLeased, s.PipesOpen)
	}
	if sum.BytesRead != sum.BytesWritten+sum.BytesDropped {
		t.Errorf("%d bytes read, %d written, %d dropped", sum.BytesRead, sum.BytesWritten, sum.BytesDropped)
	}
	for _, c := range r.e.buffers.Stats().Classes {
		if c.Gets != c.Puts {
			t.Errorf("buffers of %d bytes: %d taken, %d given back", c.Size, c.Gets, c.Puts)
		}
	}
	r.checkPools()
	checkDescriptors(t, r.e)
	want := stats.Loop{Ended: make(map[string]int64)}
	ids := make(map[uint64]bool)
	for _, rec := range r.all {
		if ids[rec.ID] {
			t.Errorf("two records have ID %d", rec.ID)
		}
		ids[rec.ID] = true
		want.Ended[rec.Cause.String()]++
		for _, tr := range []Transfer{rec.Up, rec.Down} {
			want.BytesRead += tr.Read
			want.BytesWritten += tr.Written
			want.BytesSpliced += tr.Spliced
			want.BytesDropped += tr.BytesDropped()
		}
	}
	if n := sum.Accepted + sum.Adopted; int64(len(r.all)) != n {
		t.Errorf("%d records of %d flows", len(r.all), n)
	}
	if !maps.Equal(want.Ended, sum.Ended) {
		t.Errorf("causes by the records %v, by the counters %v", want.Ended, sum.Ended)
	}
	if want.BytesRead != sum.BytesRead || want.BytesWritten != sum.BytesWritten || want.BytesSpliced != sum.BytesSpliced || want.BytesDropped != sum.BytesDropped {
		t.Errorf("bytes read, written, spliced, dropped by the records %d %d %d %d, by the counters %d %d %d %d",
			want.BytesRead, want.BytesWritten, want.BytesSpliced, want.BytesDropped,
			sum.BytesRead, sum.BytesWritten, sum.BytesSpliced, sum.BytesDropped)
	}
	for _, wrong := range r.k.Wrong() {
		t.Error(wrong)
	}
}

// done is the hook that keeps records.
func (r *rig) done(rec *Record) {
	r.mu.Lock()
	r.all = append(r.all, *rec)
	r.mu.Unlock()
	r.records <- *rec
}

// record is the next flow's account.
func (r *rig) record() Record {
	r.t.Helper()
	select {
	case rec := <-r.records:
		return rec
	case <-time.After(patience):
		s := r.e.Stats()
		r.t.Fatalf("no flow has ended; %+v;%s", s.Total(), r.k.Counts())
	}
	return Record{}
}

// expect is the next flow's account, which must have the cause.
func (r *rig) expect(c Cause) Record {
	r.t.Helper()
	rec := r.record()
	if rec.Cause != c {
		r.t.Errorf("cause %v (%v), want %v: %+v", rec.Cause, rec.Err, c, rec)
	}
	return rec
}

// listen makes a listener on a network of testnet that tries upstreams in turn.
func (r *rig) listen(network string, cfg ListenConfig, upstreams ...*Addr) *Listener {
	r.t.Helper()
	if cfg.Hooks.Upstream == nil {
		cfg.Hooks.Upstream = func(_ *Flow, attempt int) *Addr {
			if attempt < len(upstreams) {
				return upstreams[attempt]
			}
			return nil
		}
	}
	if cfg.Hooks.Done == nil {
		cfg.Hooks.Done = r.done
	}
	l, err := r.e.Listen(r.place(network), cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	return l
}

// place is an address to listen on.
func (r *rig) place(network string) Addr {
	r.t.Helper()
	switch network {
	case "tcp4":
		return Addr{Network: TCP, AddrPort: netip.MustParseAddrPort("127.0.0.1:" + testnet.Port(r.t))}
	case "tcp6":
		return Addr{Network: TCP, AddrPort: netip.MustParseAddrPort("[::1]:" + testnet.Port(r.t))}
	case "unix":
		return Addr{Network: Unix, Path: socketPath(r.t)}
	}
	r.t.Fatalf("no place on %s", network)
	return Addr{}
}

// socketPath is a path for a Unix socket that fits: tests have long names, and
// unix(7) allows 107 bytes.
func socketPath(t *testing.T) string {
	t.Helper()
	l := testnet.Listen(t, "unix")
	l.Close() // its folder goes with it
	dir := filepath.Dir(l.Addr().String())
	return dir + ".s"
}

// toNet and fromNet translate addresses.
func toNet(a Addr) net.Addr {
	if a.Network == Unix {
		return &net.UnixAddr{Net: "unix", Name: a.Path}
	}
	return net.TCPAddrFromAddrPort(a.AddrPort)
}

func fromNet(a net.Addr) *Addr {
	if tcp, ok := a.(*net.TCPAddr); ok {
		ap := tcp.AddrPort()
		return &Addr{Network: TCP, AddrPort: netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())}
	}
	return &Addr{Network: Unix, Path: a.String()}
}

func dial(t *testing.T, l *Listener) net.Conn {
	t.Helper()
	return testnet.Dial(t, toNet(l.Addr()))
}

// server is an upstream whose connections the test plays itself.
type server struct {
	net.Listener
	addr *Addr
}

func newServer(t *testing.T, network string) *server {
	t.Helper()
	l := testnet.Listen(t, network)
	return &server{l, fromNet(l.Addr())}
}

// accept takes the next connection.
func (s *server) accept(t *testing.T) net.Conn {
	t.Helper()
	testnet.Unwrap(s.Listener).(interface{ SetDeadline(time.Time) error }).SetDeadline(time.Now().Add(patience))
	c, err := s.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// echoServer is an upstream that answers by itself.
func echoServer(t *testing.T, network string) *Addr {
	t.Helper()
	l := testnet.Listen(t, network)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { testnet.Play(c, testnet.Script{Echo: true}) })
		}
	})
	t.Cleanup(func() { l.Close(); wg.Wait() })
	return fromNet(l.Addr())
}

// flow makes a listener and one flow through it: the client's end and the upstream's.
func (r *rig) flow(client, upstream string, cfg ListenConfig) (a, b net.Conn) {
	r.t.Helper()
	s := newServer(r.t, upstream)
	a = dial(r.t, r.listen(client, cfg, s.addr))
	return a, s.accept(r.t)
}

// pairs are the networks of client and upstream.
var pairs = [][2]string{{"tcp4", "tcp4"}, {"tcp4", "unix"}, {"unix", "tcp4"}, {"unix", "unix"}}

// eachPair runs a behaviour over every pair of networks.
func eachPair(t *testing.T, cfg Config, listen ListenConfig, behaviour func(t *testing.T, r *rig, a, b net.Conn)) {
	for _, p := range pairs {
		t.Run("client="+p[0]+"/upstream="+p[1], func(t *testing.T) {
			r := newRig(t, cfg)
			a, b := r.flow(p[0], p[1], listen)
			behaviour(t, r, a, b)
		})
	}
}

// play acts both ends out, and wants both to be content.
func play(t *testing.T, a, b net.Conn, sa, sb testnet.Script) {
	t.Helper()
	ra := make(chan testnet.Report, 1)
	go func() { ra <- testnet.Play(a, sa) }()
	rb := testnet.Play(b, sb)
	if r := <-ra; r.Err != "" {
		t.Errorf("client: %+v", r)
	}
	if rb.Err != "" {
		t.Errorf("upstream: %+v", rb)
	}
}

func closeWrite(t *testing.T, c net.Conn) {
	t.Helper()
	if err := c.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		t.Fatal(err)
	}
}

// say writes text and hears it at the other end.
func say(t *testing.T, from, to net.Conn, text string) {
	t.Helper()
	if err := said(from, to, text); err != nil {
		t.Fatal(err)
	}
}

func hear(t *testing.T, c net.Conn, text string) {
	t.Helper()
	if err := heard(c, text); err != nil {
		t.Fatal(err)
	}
}

func said(from, to net.Conn, text string) error {
	if _, err := io.WriteString(from, text); err != nil {
		return err
	}
	return heard(to, text)
}

func heard(c net.Conn, text string) error {
	buf := make([]byte, len(text))
	c.SetReadDeadline(time.Now().Add(patience))
	if n, err := io.ReadFull(c, buf); err != nil || string(buf) != text {
		return fmt.Errorf("heard %q, %v, want %q", buf[:n], err, text)
	}
	c.SetReadDeadline(time.Time{})
	return nil
}

// pass lets time pass on the clock of the engine, with turns of all loops in between: what is due has come when it returns. The
// timers of a turn follow its requests, and are those up to when its wait began, which is a turn earlier.
func (r *rig) pass(d time.Duration) {
	for ; d > 0; d -= tick {
		r.k.Pass(min(d, tick))
		r.e.Stats()
	}
	for range 2 {
		r.e.Stats()
	}
}

// fill writes to c until its socket has no more room: its reader, or the relay's, has stopped. It returns how much was taken.
func fill(t *testing.T, c net.Conn) (taken int) {
	t.Helper()
	chunk := make([]byte, 1<<20)
	for n := 1; n > 0 || hasRoom(t, c); taken += n {
		c.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
		var err error
		if n, err = c.Write(chunk); err != nil && !errors.Is(err, errTimeout) {
			t.Fatal(err)
		}
	}
	c.SetWriteDeadline(time.Time{})
	return taken
}

// fill is fill, and on a busy machine, too, it is not the loops that have taken nothing for a while.
func (r *rig) fill(t *testing.T, c net.Conn) {
	t.Helper()
	for taken := 1; taken > 0 || hasRoom(t, c); {
		taken = fill(t, c)
		for range 2 { // what a loop has seen in the first turn was there before
			r.e.onLoops(func(*Flow) {})
		}
	}
}

// hasRoom reports whether the socket of c takes more: a write whose deadline has passed before it began says nothing of that.
func hasRoom(t *testing.T, c net.Conn) (has bool) {
	t.Helper()
	raw, err := c.(syscall.Conn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	raw.Control(func(fd uintptr) { has = sys.Linux{}.Poll(int(fd), sys.PollOut)&sys.PollOut != 0 })
	return has
}

// readToEnd reads c to its end; the error is nil if the end is clean.
func readToEnd(t *testing.T, c net.Conn) (n int64, err error) {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(patience))
	return io.Copy(io.Discard, c)
}

// wantEnd wants a clean end at c.
func wantEnd(t *testing.T, c net.Conn) {
	t.Helper()
	if n, err := readToEnd(t, c); n != 0 || err != nil {
		t.Errorf("%d bytes and %v, want a clean end", n, err)
	}
}

// wantReset wants c to be reset. A Unix socket cannot be: there the end is all
// that its peer learns, unix(7).
func wantReset(t *testing.T, c net.Conn) {
	t.Helper()
	_, err := readToEnd(t, c)
	if _, tcp := c.(*net.TCPConn); tcp && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the end is %v, want a reset", err)
	}
	if errors.Is(err, errTimeout) {
		t.Error("no end comes")
	}
}

// wantTurnedAway dials l and wants to be reset, which dialing may already notice.
func wantTurnedAway(t *testing.T, l *Listener) {
	t.Helper()
	a := toNet(l.Addr())
	c, err := net.Dial(a.Network(), a.String())
	if errors.Is(err, syscall.ECONNRESET) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	wantReset(t, c)
}

var errTimeout = os.ErrDeadlineExceeded

// reset closes c so that its peer sees ECONNRESET. For a Unix socket that
// needs bytes in c's queue which nobody has read.
func reset(t *testing.T, c net.Conn) {
	t.Helper()
	if tcp, ok := c.(*net.TCPConn); ok {
		tcp.SetLinger(0)
	}
	c.Close()
}

// causesOf counts records by cause.
func causesOf(recs []Record) string {
	n := make(map[Cause]int)
	for _, rec := range recs {
		n[rec.Cause]++
	}
	var s []string
	for c, k := range n {
		s = append(s, fmt.Sprintf("%v %d", c, k))
	}
	slices.Sort(s)
	return strings.Join(s, ", ")
}

// loopback is a free port of the loopback address.
var loopback = netip.MustParseAddrPort("127.0.0.1:0")

// endFlows ends all flows, some at a time.
func (e *Engine) endFlows(c Cause) { e.walk(func(f *Flow) { f.owner.kill(f, c) }) }

// onLoops calls do on each loop with each of its flows, between two turns.
func (e *Engine) onLoops(do func(*Flow)) { e.walk(do) }

// streamOf is all of a stream flow.
func streamOf(f *Flow) *streamFlow { return f.owner.(*streams).of(f) }
