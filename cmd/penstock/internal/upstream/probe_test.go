package upstream

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/certs"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/relay"
)

// serve accepts on a listener until the test ends.
func serve(t *testing.T, l net.Listener, handle func(net.Conn)) relay.Addr {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			handle(c)
			c.Close()
		}
	}()
	t.Cleanup(func() {
		l.Close()
		<-done
	})
	return addrOf(l.Addr())
}

func addrOf(a net.Addr) relay.Addr {
	switch a := a.(type) {
	case *net.TCPAddr:
		return relay.Addr{Network: relay.TCP, AddrPort: a.AddrPort()}
	case *net.UDPAddr:
		return relay.Addr{Network: relay.UDP, AddrPort: a.AddrPort()}
	case *net.UnixAddr:
		if a.Net == "unixgram" {
			return relay.Addr{Network: relay.Unixgram, Path: a.Name}
		}
		return relay.Addr{Network: relay.Unix, Path: a.Name}
	}
	return relay.Addr{}
}

func listen(t *testing.T, network string) net.Listener {
	t.Helper()
	address := loopback + ":" + testnet.Port(t)
	if network == "unix" {
		address = filepath.Join(t.TempDir(), "s")
	}
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func newProber(with Control) *prober { return &prober{with, certs.NewClients(certs.Options{}, nil)} }

// ask probes once.
func ask(t *testing.T, c *spec.Check, proxy int, to relay.Addr, timeout time.Duration) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	_, err := newProber(nil).probe(ctx, &probed{group: &spec.Group{Check: c, Dial: spec.Dial{Proxy: proxy}}, addr: to})
	return err
}

// wantAnswer probes a server that does not end its answer, with more and more time, until what is wanted has come within it.
func wantAnswer(t *testing.T, c *spec.Check, to relay.Addr, want string) {
	t.Helper()
	for timeout := 200 * time.Millisecond; ; timeout *= 2 {
		err := ask(t, c, 0, to, timeout)
		if err != nil && err.Error() == want {
			return
		}
		if timeout > longEnough {
			t.Errorf("%v: %v, want %s", to, err, want)
			return
		}
	}
}

func TestProbeTCP(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		l := listen(t, network)
		to := serve(t, l, func(net.Conn) {})
		if err := ask(t, &spec.Check{Kind: "tcp"}, 0, to, longEnough); err != nil {
			t.Errorf("%s: %v", network, err)
		}
		l.Close()
		err := ask(t, &spec.Check{Kind: "tcp"}, 0, to, longEnough)
		if !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, syscall.ENOENT) {
			t.Errorf("%s that is closed: %v", network, err)
		}
	}
	// Another port than the member's.
	to := serve(t, listen(t, "tcp"), func(net.Conn) {})
	port := to.AddrPort.Port()
	to.AddrPort = netip.AddrPortFrom(to.AddrPort.Addr(), 1)
	if err := ask(t, &spec.Check{Kind: "tcp", Port: port}, 0, to, longEnough); err != nil {
		t.Error(err)
	}
}

func TestProbeSendExpect(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		to := serve(t, listen(t, network), func(c net.Conn) {
			line, _ := bufio.NewReader(c).ReadString('\n')
			for _, b := range []byte(strings.ToUpper(line)) { // in pieces
				c.Write([]byte{b})
			}
		})
		c := &spec.Check{Kind: "send-expect", Send: []byte("hello\n"), Expect: []byte("HELLO")}
		if err := ask(t, c, 0, to, longEnough); err != nil {
			t.Errorf("%s: %v", network, err)
		}
		c.Expect = nil
		if err := ask(t, c, 0, to, longEnough); err != nil {
			t.Errorf("%s, any answer: %v", network, err)
		}
		c.Expect = []byte("GOODBYE")
		if err := ask(t, c, 0, to, longEnough); err == nil || err.Error() != `the answer is "HELLO\n"; expected: "GOODBYE"` {
			t.Errorf("%s: %v", network, err)
		}
		// A server that stays is no different.
		stays := serve(t, listen(t, network), func(c net.Conn) {
			io.WriteString(c, "ERR busy\n")
			io.Copy(io.Discard, c)
		})
		wantAnswer(t, c, stays, `the answer is "ERR busy\n"; expected: "GOODBYE"`)
	}
	endless := serve(t, listen(t, "tcp"), func(c net.Conn) {
		for b := make([]byte, 32<<10); ; {
			if _, err := c.Write(b); err != nil {
				return
			}
		}
	})
	c := &spec.Check{Kind: "send-expect", Expect: []byte("x")}
	if err := ask(t, c, 0, endless, longEnough); err == nil || !strings.Contains(err.Error(), "more than 65536 bytes") {
		t.Errorf("an endless answer: %v", err)
	}
	silent := serve(t, listen(t, "tcp"), func(c net.Conn) { io.Copy(io.Discard, c) })
	if err := ask(t, c, 0, silent, 20*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("no answer: %v", err)
	}
}

// A member that expects a PROXY header gets one that says: this is the relay.
func TestProbeProxy(t *testing.T) {
	for version, head := range map[int]string{1: "PROXY UNKNOWN\r\n", 2: "\r\n\r\n\x00\r\nQUIT\n \x00\x00\x00"} {
		to := serve(t, listen(t, "tcp"), func(c net.Conn) {
			b := make([]byte, len(head)+4)
			if _, err := io.ReadFull(c, b); err == nil && string(b) == head+"PING" {
				c.Write([]byte("PONG"))
			}
		})
		c := &spec.Check{Kind: "send-expect", Send: []byte("PING"), Expect: []byte("PONG")}
		if err := ask(t, c, version, to, longEnough); err != nil {
			t.Errorf("version %d: %v", version, err)
		}
	}
}

func TestProbeHTTP(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		var got atomic.Value
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			got.Store(r.Method + " " + r.Host + r.URL.String())
			status, _ := strconv.Atoi(r.URL.Query().Get("status"))
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(status)
			io.WriteString(w, strings.Repeat("x", 200<<10))
		}))
		s.Listener.Close()
		s.Listener = listen(t, network)
		s.Start()
		to := addrOf(s.Listener.Addr())
		for _, c := range []struct {
			status   int
			statuses [][2]int
			want     string
		}{
			{200, nil, ""}, {302, nil, ""}, {404, nil, "status 404; expected: 200-399"}, {503, nil, "status 503; expected: 200-399"},
			{404, [][2]int{{200, 200}, {400, 404}}, ""}, {201, [][2]int{{200, 200}, {400, 404}}, "status 201; expected: 200, 400-404"},
		} {
			check := &spec.Check{Kind: "http", Method: "GET", Host: "app.example", Path: "/well?status=" + strconv.Itoa(c.status), Statuses: c.statuses}
			if err := ask(t, check, 0, to, longEnough); text(err) != c.want {
				t.Errorf("%s, status %d of %v: %v", network, c.status, c.statuses, err)
			}
			if want := "GET app.example" + check.Path; got.Load() != want {
				t.Errorf("the server is asked for %s, want %s", got.Load(), want)
			}
		}
		s.Close()
	}
	rude := serve(t, listen(t, "tcp"), func(c net.Conn) {
		bufio.NewReader(c).ReadString('\n')
		io.WriteString(c, "SSH-2.0-x\r\n")
	})
	if err := ask(t, &spec.Check{Kind: "http"}, 0, rude, longEnough); err == nil {
		t.Error("a server of another protocol is well")
	}
}

func TestProbeUDP(t *testing.T) {
	for _, network := range []string{"udp", "unixgram"} {
		address := loopback + ":" + testnet.Port(t)
		if network == "unixgram" {
			address = filepath.Join(t.TempDir(), "s")
		}
		p, err := net.ListenPacket(network, address)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			b := make([]byte, 1500)
			for {
				n, from, err := p.ReadFrom(b)
				if err != nil {
					return
				}
				p.WriteTo([]byte("what?"), from)
				p.WriteTo([]byte(strings.ToUpper(string(b[:n]))), from)
			}
		}()
		to := addrOf(p.LocalAddr())
		c := &spec.Check{Kind: "udp", Send: []byte("ping"), Expect: []byte("PING")}
		if err := ask(t, c, 0, to, longEnough); err != nil {
			t.Errorf("%s: %v", network, err)
		}
		c.Expect = []byte("PONG")
		wantAnswer(t, c, to, `the answer is "PING"; expected: "PONG"`)
		c.Expect = []byte(localProxyHeader[2] + "PING")
		if err := ask(t, c, 2, to, longEnough); err != nil {
			t.Errorf("%s, with a PROXY header: %v", network, err)
		}
		p.Close()
		<-done
		if err := ask(t, c, 0, to, longEnough); !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, syscall.ENOENT) {
			t.Errorf("%s that is closed: %v", network, err)
		}
	}
}

// A real server: it answers PING, dies, and comes back.
func TestRedis(t *testing.T) {
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Skip("redis-server is not installed")
	}
	at := filepath.Join(t.TempDir(), "redis")
	start := func() *exec.Cmd {
		c := exec.Command("redis-server", "--port", "0", "--unixsocket", at, "--save", "", "--appendonly", "no", "--dir", filepath.Dir(at))
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		return c
	}
	stop := func(c *exec.Cmd) {
		c.Process.Kill()
		c.Wait()
	}
	server := start()
	defer func() { stop(server) }()

	states := make(chan State, 100)
	cfg := &spec.Group{
		Balance: "first", Members: []spec.Member{{Name: "redis", Weight: 1, To: spec.Endpoint{Kind: spec.Unix, Path: at}}},
		Check: &spec.Check{
			Kind: "send-expect", Send: []byte("PING\r\n"), Expect: []byte("+PONG\r\n"),
			Every: 20 * time.Millisecond, Timeout: longEnough, Rise: 2, Fall: 2,
		},
	}
	set(t, cfg, Options{MemberChanged: func(e MemberEvent) { states <- e.To }})
	until := func(want State) {
		t.Helper()
		for deadline := time.After(longEnough); ; {
			select {
			case s := <-states:
				if s == want {
					return
				}
			case <-deadline:
				t.Fatalf("redis never is %v", want)
			}
		}
	}
	until(Up)
	stop(server)
	until(Down)
	server = start()
	until(Up)
}

// Checks go the way that flows go: from the group's source, and with its options.
func TestProbeDialsAsTheGroup(t *testing.T) {
	from := make(chan string, 1)
	to := serve(t, listen(t, "tcp"), func(c net.Conn) { from <- c.RemoteAddr().(*net.TCPAddr).IP.String() })
	g := &spec.Group{Check: &spec.Check{Kind: "tcp"}, Dial: spec.Dial{
		Source: []netip.Addr{netip.MustParseAddr("::1"), netip.MustParseAddr("127.83.0.9")}, Interface: "lo", Mark: 7,
	}}
	ctx, cancel := context.WithTimeout(t.Context(), longEnough)
	defer cancel()
	controlled := false
	with := func(d *spec.Dial) func(string, string, syscall.RawConn) error {
		return func(string, string, syscall.RawConn) error {
			controlled = d.Interface == "lo" && d.Mark == 7
			return nil
		}
	}
	if _, err := newProber(with).probe(ctx, &probed{group: g, addr: to}); err != nil || !controlled {
		t.Fatal(controlled, err)
	}
	if ip := <-from; ip != "127.83.0.9" {
		t.Errorf("the check comes from %s", ip)
	}
	// A source of its own, as behind clients' addresses.
	g.Check.Source, g.Dial.Source, g.Dial.Transparent = netip.MustParseAddr("127.83.0.10"), nil, true
	if _, err := newProber(with).probe(ctx, &probed{group: g, addr: to}); err != nil {
		t.Fatal(err)
	}
	if ip := <-from; ip != "127.83.0.10" {
		t.Errorf("the check with a source comes from %s", ip)
	}
}
