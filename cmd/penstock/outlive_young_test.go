package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/pires/go-proxyproto"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/internal/testkernel"
	"github.com/penstock/penstock/internal/testwait"
)

// lateServer is an upstream whose accept queue is full, until open is called.
type lateServer struct {
	t     *testing.T
	file  *os.File
	heads int // clients in the queue
}

// beLate returns a server on a Unix socket, because attempts to connect to it go on at the next tick.
func beLate(t *testing.T, path string) *lateServer {
	t.Helper()
	const backlog = 1
	file, err := testkernel.ListenUnix(path, backlog)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	for range backlog + 1 {
		head, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { head.Close() })
	}
	return &lateServer{t: t, file: file, heads: backlog + 1}
}

// open makes the server accept clients, which begin with a PROXY header, and returns the next one and the
// header. The server echoes.
func (s *lateServer) open() <-chan *proxyproto.Header {
	s.t.Helper()
	plain, err := net.FileListener(s.file)
	if err != nil {
		s.t.Fatal(err)
	}
	for range s.heads {
		head, err := plain.Accept()
		if err != nil {
			s.t.Fatal(err)
		}
		head.Close()
	}
	l := &proxyproto.Listener{Listener: plain, ReadHeaderTimeout: patience}
	headers := make(chan *proxyproto.Header, 1)
	over := make(chan struct{})
	go func() {
		defer close(over)
		defer close(headers)
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(patience))
		headers <- c.(*proxyproto.Conn).ProxyHeader()
		io.CopyN(c, c, int64(len("no TLS")))
	}()
	s.t.Cleanup(func() { l.Close(); <-over })
	return headers
}

// inState waits until n flows are in a state.
func (k *kept) inState(state string, n int) {
	k.t.Helper()
	testwait.Until(k.t, fmt.Sprintf("%d flows are %s", n, state), func() bool {
		l, err := k.admin.Flows(k.ctx(), api.Filter{State: state}, api.Page{})
		return err == nil && len(l.Flows) == n
	})
}

// An upgrade finds flows at each stage before they relay: with nothing, half and all of a PROXY header
// read, in the middle of a ClientHello, queued, and about to connect. All of them go on, and the upstream
// learns who the client is.
func TestUpgradeOfYoungFlows(t *testing.T) {
	t.Parallel()
	up := speak(t, "up")
	const text = `
reload: {watch: false}
defaults: {sniff: {timeout: 1m}, timeouts: {connect: 1m}}
listeners:
  header: {listen: "tcp://127.0.0.1:0", proxy-protocol: {from: 127.0.0.1}, to: "{0}"}
  both: {listen: "tcp://127.0.0.1:0", proxy-protocol: {from: 127.0.0.1}, routes: [{sni: one.test, to: "{0}"}], to: "{0}"}
  queue: {listen: "tcp://127.0.0.1:0", to: queue}
  late: {listen: "tcp://127.0.0.1:0", proxy-protocol: {from: 127.0.0.1}, routes: [{name: {1}, from: 192.0.2.0/24, to: late}]}
groups:
  queue: {members: [{to: "{0}", max-flows: 1}], queue: {size: 5, timeout: 1m}}
  late: {members: ["unix://{dir}/late"], proxy-protocol: v2}
`
	for _, c := range []struct {
		name, route string
		client      string
	}{{"same configuration", "a", ""}, {"another route", "b", ""}} {
		t.Run(c.name, func(t *testing.T) {
			k := runKept(t, text, up.url(), "a")
			late := beLate(t, filepath.Join(k.dir, "late"))
			head := header(t, 2, "192.0.2.7:1234")

			silent, half, hello := k.to("header"), k.to("header"), k.to("both")
			half.Write(head[:9])
			hello.Write(append(bytes.Clone(head), 0x16, 3, 1))
			k.inState("sniffing", 3)
			slow := k.to("late")
			slow.Write(append(bytes.Clone(head), "no TLS"...))
			k.inState("connecting", 1)
			first := k.to("queue")
			name(t, first)
			second := k.to("queue")
			k.inState("queued", 1)

			if c.route != "a" {
				k.write(t, text+keeperOfTests, up.url(), c.route)
			}
			for range 2 {
				k.upgrade()
				k.inState("sniffing", 3)
				k.inState("connecting", 1)
			}
			headers := late.open()
			var h *proxyproto.Header
			select {
			case h = <-headers:
			case <-time.After(patience):
			}
			if h == nil || h.SourceAddr.String() != "192.0.2.7:1234" {
				t.Errorf("the header is %+v", h)
			}
			got := make([]byte, len("no TLS"))
			if _, err := io.ReadFull(slow, got); err != nil || string(got) != "no TLS" {
				t.Errorf("%q, %v", got, err)
			}
			mustPing(t, first)
			first.Close()
			silent.Write(head)
			half.Write(head[9:])
			io.WriteString(hello, "no TLS, after all")
			for what, conn := range map[string]net.Conn{"silent": silent, "half a header": half, "hello": hello, "queued": second} {
				if n := name(t, conn); n != "up" {
					t.Errorf("%s: it went to %q", what, n)
				}
			}
		})
	}
}

// header returns a PROXY header for a client.
func header(t *testing.T, version byte, client string) []byte {
	t.Helper()
	to := net.TCPAddrFromAddrPort(netip.MustParseAddrPort("198.51.100.1:443"))
	var b bytes.Buffer
	if _, err := proxyproto.HeaderProxyFromAddrs(version, net.TCPAddrFromAddrPort(netip.MustParseAddrPort(client)), to).WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
