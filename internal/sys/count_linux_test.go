package sys

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testwait"
	"golang.org/x/sys/unix"
)

// connected returns the two ends of a TCP connection: the one that has connected, and the one that was
// accepted.
func connected(t testing.TB, proto int) (active, passive int) {
	t.Helper()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ln, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, proto)
	if err != nil && proto != 0 {
		t.Skip(err)
	}
	check(err)
	defer unix.Close(ln)
	loopback := [4]byte{127, 0, 0, 1}
	check(unix.Bind(ln, &unix.SockaddrInet4{Addr: loopback}))
	check(unix.Listen(ln, 1))
	at, err := unix.Getsockname(ln)
	check(err)
	active, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, proto)
	check(err)
	closeLater(t, active)
	check(unix.Connect(active, at))
	passive, _, err = unix.Accept4(ln, unix.SOCK_CLOEXEC)
	check(err)
	closeLater(t, passive)
	for _, fd := range []int{active, passive} {
		check(unix.SetNonblock(fd, true))
	}
	return active, passive
}

func closeLater(t testing.TB, fd int) { t.Cleanup(func() { unix.Close(fd) }) }

func counts(t *testing.T, fd int) TCPCounts {
	t.Helper()
	c, e := Linux{}.TCPCounts(fd)
	if e != 0 {
		t.Fatal(e)
	}
	return c
}

func send(t testing.TB, fd int, n int) {
	t.Helper()
	if m, e := (Linux{}).Send(fd, make([]byte, n)); e != 0 || m != n {
		t.Fatalf("sent %d of %d bytes: %v", m, n, e)
	}
}

// recv takes exactly n bytes, and waits for them.
func recv(t *testing.T, fd int, n int) {
	t.Helper()
	for n > 0 {
		var m int
		testwait.Until(t, "bytes to read", func() bool {
			var e Errno
			m, e = Linux{}.Recv(fd, make([]byte, n))
			if e != 0 && e != EAGAIN {
				t.Fatal(e)
			}
			return e == 0
		})
		n -= m
	}
}

func wantCounts(t *testing.T, what string, fd int, consumed, written uint64, s TCPState) {
	t.Helper()
	testwait.Until(t, what, func() bool { return counts(t, fd).State == s })
	if got, want := counts(t, fd), (TCPCounts{Consumed: consumed, Written: written, State: s}); got != want {
		t.Errorf("%s: %+v, want %+v", what, got, want)
	}
}

// TestTCPCounts: what the counts include in each state. Every number here is relied on when flows are
// continued by another process.
func TestTCPCounts(t *testing.T) {
	k := Linux{}
	opened := func(t *testing.T) (a, p int) {
		a, p = connected(t, 0)
		wantCounts(t, "the active opener", a, 0, 1, TCPEstablished)
		wantCounts(t, "the passive opener", p, 0, 0, TCPEstablished)
		send(t, a, 1000)
		send(t, p, 500)
		recv(t, p, 300)
		wantCounts(t, "the active opener, 1,000 sent", a, 0, 1001, TCPEstablished)
		wantCounts(t, "the passive opener, 300 of them read", p, 300, 500, TCPEstablished)
		return a, p
	}
	t.Run("half-close, active first", func(t *testing.T) {
		a, p := opened(t)
		k.ShutdownWrite(a)
		wantCounts(t, "FIN sent", a, 0, 1002, TCPFinWait2)
		wantCounts(t, "FIN received, 700 bytes before it unread", p, 301, 500, TCPCloseWait)
		recv(t, p, 700)
		wantCounts(t, "FIN received, the bytes before it read", p, 1001, 500, TCPCloseWait)
		if n, e := k.Recv(p, make([]byte, 1)); n != 0 || e != 0 {
			t.Fatalf("read %d, %v at the end", n, e)
		}
		wantCounts(t, "the end read", p, 1001, 500, TCPCloseWait)
		send(t, p, 100)
		recv(t, a, 50)
		wantCounts(t, "half-closed, bytes go on", p, 1001, 600, TCPCloseWait)
		wantCounts(t, "half-closed, bytes come", a, 50, 1002, TCPFinWait2)
		k.ShutdownWrite(p)
		wantCounts(t, "both FINs, the active one is closed", a, 51, 1002, TCPClose)
		wantCounts(t, "both FINs, the passive one is closed", p, 1001, 601, TCPClose)
		recv(t, a, 550)
		wantCounts(t, "all read", a, 601, 1002, TCPClose)
	})
	t.Run("half-close, passive first", func(t *testing.T) {
		a, p := opened(t)
		k.ShutdownWrite(p)
		wantCounts(t, "FIN sent", p, 300, 501, TCPFinWait2)
		wantCounts(t, "FIN received", a, 1, 1001, TCPCloseWait)
		k.ShutdownBoth(a)
		wantCounts(t, "closed after FIN", a, 1, 1002, TCPClose)
		wantCounts(t, "closed by FIN", p, 301, 501, TCPClose)
	})
	t.Run("FIN behind unsent bytes", func(t *testing.T) {
		a, p := connected(t, 0)
		n := uint64(1)
		for {
			m, e := k.Send(a, make([]byte, 1<<16))
			if e != 0 {
				break
			}
			n += uint64(m)
		}
		k.ShutdownWrite(a)
		wantCounts(t, "FIN queued", a, 0, n+1, TCPFinWait1)
		if got := counts(t, p); got.Consumed != 0 || got.State != TCPEstablished {
			t.Errorf("nothing read: %+v", got)
		}
		recv(t, p, int(n-1))
		wantCounts(t, "FIN after all", p, n, 0, TCPCloseWait)
		wantCounts(t, "FIN acknowledged", a, 0, n+1, TCPFinWait2)
		k.ShutdownWrite(p)
		wantCounts(t, "closed", p, n, 1, TCPClose)
	})
	t.Run("closing at once", func(t *testing.T) {
		// Full receive buffers hold the FINs back, so that each side sends its own before it gets
		// the other's. What the states between count is read from wherever it stands.
		a, p := connected(t, 0)
		var n [2]uint64
		for i, fd := range []int{a, p} {
			for {
				m, e := k.Send(fd, make([]byte, 1<<16))
				if e != 0 {
					break
				}
				n[i] += uint64(m)
			}
		}
		k.ShutdownWrite(a)
		k.ShutdownWrite(p)
		wantCounts(t, "FIN queued", a, 0, n[0]+2, TCPFinWait1)
		wantCounts(t, "FIN queued", p, 0, n[1]+1, TCPFinWait1)
		recv(t, p, int(n[0]))
		recv(t, a, int(n[1]))
		testwait.Until(t, "closed", func() bool { return counts(t, a).State == TCPClose && counts(t, p).State == TCPClose })
		wantCounts(t, "closed", a, n[1]+1, n[0]+2, TCPClose)
		wantCounts(t, "closed", p, n[0]+1, n[1]+1, TCPClose)
	})
	t.Run("reset", func(t *testing.T) {
		a, p := opened(t)
		if e := k.Disconnect(a); e != 0 {
			t.Fatal(e)
		}
		// The reset does not count, and what had arrived before it stays readable.
		wantCounts(t, "reset by the peer, 700 bytes unread", p, 300, 500, TCPClose)
		if e := SockError(Linux{}, p); e != ECONNRESET {
			t.Errorf("pending error %v", e)
		}
		recv(t, p, 700)
		wantCounts(t, "reset by the peer, all read", p, 1000, 500, TCPClose)
		if n, e := k.Recv(p, make([]byte, 1)); n != 0 || e != 0 {
			t.Errorf("read %d, %v: an error that was taken does not come again", n, e)
		}
		// Disconnect clears the counts of its own socket.
		if got := counts(t, a); got.State != TCPClose {
			t.Errorf("after Disconnect: %+v", got)
		}
	})
	t.Run("urgent", func(t *testing.T) {
		a, p := opened(t)
		recv(t, p, 700)
		send(t, a, 10)
		SendUrgent(a, 'x')
		send(t, a, 20)
		testwait.Until(t, "all arrives", func() bool { return counts(t, p).Urgent && counts(t, a).Written == 1032 && outq(a) == 0 })
		if got := counts(t, p); got.Consumed == 1000 {
			t.Errorf("behind an urgent byte nothing counts as queued, but consumed are %d", got.Consumed)
		}
		recv(t, p, 30)
		wantCounts(t, "the urgent byte is skipped, and counts", p, 1031, 500, TCPEstablished)
	})
}

func outq(fd int) int {
	n, _ := Linux{}.WriteQueued(fd)
	return n
}

// TestTCPCountsUnderTraffic: the counts of a socket that its own process leaves alone do not change,
// whatever its peer does meanwhile.
func TestTCPCountsUnderTraffic(t *testing.T) {
	a, p := connected(t, 0)
	for round := range 20 {
		written := counts(t, a).Written
		before := counts(t, p).Consumed
		sent := make(chan int)
		go func() { // fills the connection with small segments
			n := 0
			for {
				m, e := Linux{}.Send(a, make([]byte, 1500))
				if e != 0 {
					break
				}
				n += m
			}
			sent <- n
		}()
		n := -1
		for n < 0 {
			select {
			case n = <-sent:
			default:
			}
			if got := counts(t, p).Consumed; got != before {
				t.Fatalf("round %d: consumed %d, want %d", round, got, before)
			}
		}
		written += uint64(n)
		done := make(chan bool)
		go func() { // drains it
			defer close(done)
			b := make([]byte, 4000)
			for left := n; left > 0; {
				m, e := Linux{}.Recv(p, b)
				if e != 0 && e != EAGAIN {
					return
				}
				left -= m
			}
		}()
		for drained := false; !drained; {
			select {
			case <-done:
				drained = true
			default:
			}
			if got := counts(t, a).Written; got != written {
				t.Fatalf("round %d: written %d, want %d", round, got, written)
			}
		}
		if got := counts(t, p).Consumed; got != before+uint64(n) {
			t.Fatalf("round %d: consumed %d, want %d", round, got, before+uint64(n))
		}
	}
}

func TestFINs(t *testing.T) {
	type fins struct{ sent, received, known bool }
	for s, want := range map[TCPState]fins{
		TCPEstablished: {false, false, true}, TCPCloseWait: {false, true, true}, TCPLastAck: {true, true, true},
		TCPFinWait1: {true, false, true}, TCPFinWait2: {true, false, true}, TCPClosing: {true, true, true},
		TCPTimeWait: {true, true, true}, TCPClose: {false, false, false},
	} {
		var got fins
		if got.sent, got.received, got.known = s.FINs(); got != want {
			t.Errorf("state %d: %+v, want %+v", s, got, want)
		}
	}
}

// TestTCPCountsOfOthers: what has no counts says so.
func TestTCPCountsOfOthers(t *testing.T) {
	unixA, unixB, e := Pair()
	if e != 0 {
		t.Fatal(e)
	}
	closeLater(t, unixA)
	closeLater(t, unixB)
	if _, e := (Linux{}).TCPCounts(unixA); e == 0 || IsPlainTCP(unixA) {
		t.Errorf("a Unix socket: %v", e)
	}
	udp, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	closeLater(t, udp)
	if _, e := (Linux{}).TCPCounts(udp); e == 0 || IsPlainTCP(udp) {
		t.Errorf("a UDP socket: %v", e)
	}
	a, _ := connected(t, 0)
	if !IsPlainTCP(a) {
		t.Error("TCP is not TCP")
	}
	t.Run("mptcp", func(t *testing.T) {
		a, _ := connected(t, unix.IPPROTO_MPTCP)
		if _, e := (Linux{}).TCPCounts(a); e != EOPNOTSUPP || IsPlainTCP(a) {
			t.Errorf("multipath TCP: %v, plain %v", e, IsPlainTCP(a))
		}
	})
}

func TestQueued(t *testing.T) {
	r, w, _, e := Linux{}.Pipe(1 << 16)
	if e != 0 {
		t.Fatal(e)
	}
	closeLater(t, r)
	closeLater(t, w)
	unix.Write(w, make([]byte, 5000))
	for _, fd := range []int{r, w} {
		if n, e := (Linux{}).ReadQueued(fd); n != 5000 || e != 0 {
			t.Errorf("%d bytes in the pipe, %v", n, e)
		}
	}
}

// TestMap: mappings take memory only where they were touched, and are not part of core dumps.
func TestMap(t *testing.T) {
	const size = 1 << 30
	fd, e := Memfd("penstock-map", size)
	if e != 0 {
		t.Fatal(e)
	}
	closeLater(t, fd)
	if n, e := SealedSize(fd); n != size || e != 0 {
		t.Errorf("size %d, %v", n, e)
	}
	if err := unix.Ftruncate(fd, 10); err == nil {
		t.Error("the file shrinks")
	}
	b, e := Map(fd, size)
	if e != 0 {
		t.Fatal(e)
	}
	defer Unmap(b)
	b[size-1], b[1<<20] = 1, 2
	var st unix.Stat_t
	blocks := func() int64 {
		if err := unix.Fstat(fd, &st); err != nil {
			t.Fatal(err)
		}
		return st.Blocks * 512
	}
	if n := blocks(); n == 0 || n > 1<<16 {
		t.Errorf("two pages take %d bytes", n)
	}
	if e := PunchHole(fd, 1<<20, 1<<20); e != 0 || b[1<<20] != 0 || b[size-1] != 1 {
		t.Errorf("%v; the freed page has %d, the other %d", e, b[1<<20], b[size-1])
	}
	text, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Skip(err)
	}
	_, part, found := bytes.Cut(text, []byte("penstock-map"))
	_, part, flags := bytes.Cut(part, []byte("VmFlags:"))
	part, _, _ = bytes.Cut(part, []byte("\n"))
	if !found || !flags || !slices.Contains(strings.Fields(string(part)), "dd") {
		t.Errorf("the mapping has the flags %q, without dd: it would be dumped", part)
	}
	if n, ok := Offset(b, b[5:5]); n != 5 || !ok {
		t.Errorf("offset %d, %v", n, ok)
	}
	if _, ok := Offset(b[:100], b[100:]); ok {
		t.Error("what is behind a slice is in it")
	}
	if _, ok := Offset(b[100:], b); ok {
		t.Error("what is before a slice is in it")
	}
	for name, f := range map[string]func(){
		"a pointer":   func() { Cast[struct{ p *int }](b) },
		"too short":   func() { Cast[[9]uint64](b[:71]) },
		"not aligned": func() { Cast[uint64](b[4:]) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: Cast did not panic", name)
				}
			}()
			f()
		}()
	}
}

func TestMonotonic(t *testing.T) {
	var before, after unix.Timespec
	unix.ClockGettime(unix.CLOCK_MONOTONIC, &before)
	now := MonotonicNow()
	unix.ClockGettime(unix.CLOCK_MONOTONIC, &after)
	// The two clocks were compared once, when the program started: that took a moment.
	const slack = int64(time.Second)
	if now < before.Nano()-slack || now > after.Nano()+slack {
		t.Errorf("%d is not between %d and %d", now, before.Nano(), after.Nano())
	}
}

// TestDescriptors: descriptors travel, and whoever made the pair is known.
func TestDescriptors(t *testing.T) {
	a, b, e := Pair()
	if e != 0 {
		t.Fatal(e)
	}
	closeLater(t, a)
	closeLater(t, b)
	if pid, e := PeerPID(a); pid != unix.Getpid() || e != 0 {
		t.Errorf("peer %d, %v", pid, e)
	}
	var buf FDBuffer
	p := make([]byte, 100)
	if _, _, _, e := buf.Recv(b, p, nil); e != EAGAIN {
		t.Errorf("nothing there: %v", e)
	}
	fds := slices.Repeat([]int{a}, MaxFDs)
	if e := buf.Send(a, []byte("all"), fds); e != 0 {
		t.Fatal(e)
	}
	if e := buf.Send(a, []byte("one more"), append(fds, a)); e != EINVAL {
		t.Errorf("too many: %v", e)
	}
	if e := buf.Send(a, bytes.Repeat([]byte("long"), 100), fds[:2]); e != 0 {
		t.Fatal(e)
	}
	buf.Send(a, []byte("none"), nil)
	closeAll := func(fds []int) {
		for _, fd := range fds {
			unix.Close(fd)
		}
	}
	n, got, lost, e := buf.Recv(b, p, nil)
	if string(p[:n]) != "all" || len(got) != MaxFDs || lost || e != 0 {
		t.Errorf("%q with %d descriptors, lost %v, %v", p[:n], len(got), lost, e)
	}
	for _, fd := range got {
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
			t.Fatalf("descriptor %d: flags %#x, %v", fd, flags, err)
		}
	}
	closeAll(got)
	n, got, lost, e = buf.Recv(b, p, nil)
	if n != len(p) || len(got) != 2 || !lost || e != 0 {
		t.Errorf("too long: %d bytes with %d descriptors, lost %v, %v", n, len(got), lost, e)
	}
	closeAll(got)
	n, got, lost, e = buf.Recv(b, p, nil)
	if string(p[:n]) != "none" || len(got) != 0 || lost || e != 0 {
		t.Errorf("%q with %d descriptors, lost %v, %v", p[:n], len(got), lost, e)
	}
	// A process without free descriptors gets only some, and learns it.
	if e := buf.Send(a, []byte("full"), fds[:20]); e != 0 {
		t.Fatal(e)
	}
	var limit unix.Rlimit
	unix.Getrlimit(unix.RLIMIT_NOFILE, &limit)
	next, e := Dup(a)
	if e != 0 {
		t.Fatal(e)
	}
	unix.Close(next)
	unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(next + 5), Max: limit.Max})
	n, got, lost, e = buf.Recv(b, p, nil)
	unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)
	if string(p[:n]) != "full" || len(got) >= 20 || !lost || e != 0 {
		t.Errorf("%q with %d descriptors, lost %v, %v", p[:n], len(got), lost, e)
	}
	closeAll(got)
	unix.Shutdown(a, unix.SHUT_WR)
	if n, got, lost, e := buf.Recv(b, p, nil); n != 0 || got != nil || lost || e != 0 {
		t.Errorf("at the end: %d, %v, %v, %v", n, got, lost, e)
	}
}

func TestDisconnectRefused(t *testing.T) {
	a, b, e := Pair()
	if e != 0 {
		t.Fatal(e)
	}
	closeLater(t, a)
	closeLater(t, b)
	if e := (Linux{}).Disconnect(a); e == 0 {
		t.Error("a Unix socket was disconnected")
	}
}
