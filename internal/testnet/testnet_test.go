package testnet

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
)

func TestMain(m *testing.M) { Main(m) }

func TestPair(t *testing.T) {
	CheckLeaks(t)
	for _, network := range Networks {
		t.Run(network, func(t *testing.T) {
			a, b := Pair(t, network)
			if _, err := a.Write([]byte("ping")); err != nil {
				t.Fatal(err)
			}
			a.Close()
			got, err := io.ReadAll(b)
			if err != nil || string(got) != "ping" {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
}

func TestPeers(t *testing.T) {
	CheckLeaks(t)
	for _, network := range Networks {
		t.Run(network, func(t *testing.T) {
			const size = 1<<20 + 13
			src, source := Start(t, network, Script{Send: size, SendSeed: 1, SendChunk: 1000})
			dst, sink := Start(t, network, Script{Recv: size, RecvSeed: 1})
			n, err := io.Copy(dst, src)
			if n != size || err != nil {
				t.Fatalf("copied %d, %v", n, err)
			}
			dst.Close()
			src.Close()
			if r := source.MustWait(t); r.Sent != size {
				t.Errorf("source: %+v", r)
			}
			if r := sink.MustWait(t); r.Received != size {
				t.Errorf("sink: %+v", r)
			}
		})
	}
}

func TestEchoServer(t *testing.T) {
	CheckLeaks(t)
	for _, network := range Networks {
		t.Run(network, func(t *testing.T) {
			addr, server := StartServer(t, network, Script{Echo: true})
			r := Play(Dial(t, addr), Script{Send: 100_000, SendSeed: 7, Recv: 100_000, RecvSeed: 7})
			if r.Err != "" || r.Sent != 100_000 || r.Received != 100_000 {
				t.Errorf("%+v", r)
			}
			server.Stop()
			if c, err := net.Dial(addr.Network(), addr.String()); err == nil {
				c.Close()
				t.Error("the server is still there after Stop")
			}
		})
	}
}

// A sink must notice errors in transit.
func TestSinkIsStrict(t *testing.T) {
	p := NewPattern(3)
	for name, c := range map[string]struct {
		bytes []byte
		want  string
	}{
		"good":    {p.At(0, 5000), ""},
		"short":   {p.At(0, 4999), "unexpected EOF"},
		"long":    {p.At(0, 5001), "more bytes"},
		"shifted": {p.At(1, 5000), "byte 0 is"},
		"torn":    {append(append([]byte{}, p.At(0, 4000)...), p.At(4001, 1000)...), "byte 4000 is"},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := Pair(t, "tcp4")
			go func() {
				a.Write(c.bytes)
				a.(*net.TCPConn).CloseWrite()
			}()
			r := Play(b, Script{Recv: 5000, RecvSeed: 3})
			if (r.Err == "") != (c.want == "") || !strings.Contains(r.Err, c.want) {
				t.Errorf("report %+v, want %q", r, c.want)
			}
		})
	}
}

func TestReset(t *testing.T) {
	c, peer := Start(t, "tcp4", Script{Send: 10, Reset: true})
	if _, err := io.ReadAll(c); err == nil {
		t.Error("no error after a reset")
	}
	if r := peer.MustWait(t); r.Sent != 10 {
		t.Errorf("%+v", r)
	}
}

func TestPatternRepeatsNowhereNear(t *testing.T) {
	p, q := NewPattern(1), NewPattern(2)
	if p.Check(0, q.At(0, 64)) == nil {
		t.Error("two seeds give one stream")
	}
	if err := p.Check(period-5, p.At(period-5, 10)); err != nil {
		t.Error(err)
	}
	for _, off := range []int64{1, 4096, 65536, 1 << 20, 1 << 30} {
		if p.Check(0, p.At(off, 64)) == nil {
			t.Errorf("the stream repeats after %d", off)
		}
	}
}

// A leak is found, and the message says where it was created.
func TestLeaksAreNamed(t *testing.T) {
	before := snapshot()
	stop := make(chan bool)
	go func() { <-stop }()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	got := before.leaks(0)
	close(stop)
	l.Close()
	want := []string{"TestLeaksAreNamed"}
	if runtime.GOOS == "linux" {
		want = append(want, "socket:[", l.Addr().String())
	}
	for _, w := range want {
		if !strings.Contains(got, w) {
			t.Errorf("%q is not in:\n%s", w, got)
		}
	}
	if rest := before.leaks(grace); rest != "" {
		t.Errorf("still there:\n%s", rest)
	}
}

// A socket that was there is no leak because it has a peer now, or because the kernel's table did not show it before.
func TestChangedSocketIsNoLeak(t *testing.T) {
	c, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	before := snapshot()
	for fd, what := range before.fds {
		if strings.Contains(what, c.LocalAddr().String()) {
			before.fds[fd], _, _ = strings.Cut(what, " ")
		}
	}
	if got := before.leaks(0); got != "" {
		t.Error(got)
	}
}

// The race job proves that it is one: a child with a race must end with the
// detector's exit code.
func TestRaceIsDetected(t *testing.T) {
	if os.Getenv("PENSTOCK_TESTNET_RACE") == "1" {
		n := 0
		done := make(chan bool)
		go func() { n++; close(done) }()
		n++
		<-done
		return
	}
	if !RaceEnabled {
		t.Skip("built without -race")
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, "-test.run=^TestRaceIsDetected$")
	cmd.Env = append(os.Environ(), "PENSTOCK_TESTNET_RACE=1")
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || !strings.Contains(string(out), "WARNING: DATA RACE") {
		t.Errorf("the detector stayed silent: %v\n%s", err, out)
	}
}

// With WantRace set, a binary without the detector fails.
func TestWantRace(t *testing.T) {
	if RaceEnabled {
		t.Skip("built with -race")
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, "-test.run=^$")
	cmd.Env = append(os.Environ(), WantRace+"=1")
	if out, err := cmd.CombinedOutput(); err == nil {
		t.Errorf("tests ran without -race:\n%s", out)
	}
}

// A failure says how many bytes are wrong, and where in the stream they belong.
func TestWrongBytes(t *testing.T) {
	const off = 2*period + 1000
	p, other := NewPattern(1), NewPattern(2)
	changed := func(from, to int, by []byte) []byte {
		got := bytes.Clone(p.At(off, 4096))
		copy(got[from:to], by)
		return got
	}
	for want, got := range map[string][]byte{
		"wrong for 100, which belong +300 from there (modulo 1048573)":                     changed(50, 150, p.At(off+350, 100)),
		"wrong up to the last of 4046 bytes, which belong -64 from there (modulo 1048573)": append(changed(0, 0, nil)[:50:50], p.At(off-14, 4046)...),
		"wrong for 100, which are not of this stream":                                      changed(50, 150, other.At(off+50, 100)),
	} {
		if err := p.Check(off, got); err == nil || !strings.HasSuffix(err.Error(), want) || !strings.HasPrefix(err.Error(), fmt.Sprintf("byte %d is ", off+50)) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	right := p.At(off, 4096)[50]
	want := fmt.Sprintf("byte %d is %#02x, want %#02x; wrong for 1: %02x instead of %02x", off+50, ^right, right, ^right, right)
	if err := p.Check(off, changed(50, 51, []byte{^right})); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}
