package main

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pires/go-proxyproto"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/internal/testwait"
)

// capturing is penstock capture, into a file.
type capturing struct {
	t    *testing.T
	cmd  *exec.Cmd
	file string
	said *lockedBuffer

	ended chan struct{}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// capture starts a capture, and waits until it takes packets.
func (c *configured) capture(t *testing.T, args ...string) *capturing {
	t.Helper()
	k := &capturing{t: t, file: filepath.Join(t.TempDir(), "f.pcapng"), said: new(lockedBuffer), ended: make(chan struct{})}
	k.cmd = exec.Command(binary, append([]string{"capture", "--admin", "unix://" + c.dir + "/admin.sock", "-w", k.file}, args...)...)
	k.cmd.Stdout, k.cmd.Stderr = k.said, k.said
	if err := k.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		k.cmd.Wait()
		close(k.ended)
	}()
	t.Cleanup(func() {
		k.cmd.Process.Kill()
		<-k.ended
	})
	testwait.Until(t, "the capture takes packets", func() bool {
		select {
		case <-k.ended:
			if strings.Contains(k.said.String(), "CAP_NET_RAW") {
				t.Skip("packet sockets need CAP_NET_RAW")
			}
			t.Fatalf("it has ended: %s", k.said)
		default:
		}
		return strings.Contains(k.said.String(), "capturing;")
	})
	return k
}

// interrupt ends a capture as Ctrl-C does.
func (k *capturing) interrupt() {
	k.cmd.Process.Signal(syscall.SIGINT)
}

// mustEnd waits for the end of a capture.
func (k *capturing) mustEnd() {
	k.t.Helper()
	testwait.Until(k.t, "the capture has ended", func() bool {
		select {
		case <-k.ended:
			return true
		default:
			return false
		}
	})
	if code := k.cmd.ProcessState.ExitCode(); code != 0 {
		k.t.Fatalf("it has ended with %d: %s", code, k.said)
	}
}

// stream is what one end has sent on one side of a flow.
type stream struct {
	on   string // the interface
	from int    // port
}

// payloads returns what is in a file, by who has sent it where, put together by TCP's sequence numbers; of UDP, one datagram after the other.
// tshark is the reader.
func payloads(t *testing.T, file string) map[stream][]byte {
	t.Helper()
	out, err := exec.Command("tshark", "-r", file, "-T", "fields", "-E", "separator=|", "-e", "frame.interface_name", "-e", "tcp.srcport", "-e", "udp.srcport",
		"-e", "tcp.seq_raw", "-e", "tcp.flags.syn", "-e", "tcp.payload", "-e", "udp.payload").Output()
	if err != nil {
		t.Fatalf("tshark: %v", err)
	}
	first, all := map[stream]uint32{}, map[stream][]byte{}
	for line := range strings.Lines(string(out)) {
		w := strings.Split(strings.TrimSpace(line), "|")
		payload, err := hex.DecodeString(w[5] + w[6])
		if err != nil {
			t.Fatalf("%v: %.100s", err, line)
		}
		if w[2] != "" {
			port, _ := strconv.Atoi(w[2])
			s := stream{w[0], port}
			all[s] = append(all[s], payload...)
			continue
		}
		port, _ := strconv.Atoi(w[1])
		n, err := strconv.ParseUint(w[3], 10, 32)
		if err != nil {
			t.Fatalf("%v: %.100s", err, line)
		}
		s, seq := stream{w[0], port}, uint32(n)
		if w[4] == "1" || w[4] == "True" {
			seq++
		}
		if _, ok := first[s]; !ok {
			first[s] = seq
		}
		if len(payload) == 0 {
			continue
		}
		at := int(seq - first[s])
		switch have := len(all[s]); {
		case at > have:
			t.Fatalf("%v: %d bytes are missing at %d", s, at-have, have)
		case at+len(payload) > have:
			all[s] = append(all[s], payload[have-at:]...)
		}
	}
	return all
}

// owned returns bytes that only one owner sends.
func owned(owner uint64, n int) []byte {
	r, b := rand.New(rand.NewPCG(owner, 1)), make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

func portNumber(a net.Addr) int {
	_, port, _ := net.SplitHostPort(a.String())
	n, _ := strconv.Atoi(port)
	return n
}

// echoOf is a member that sends back what it gets, each byte inverted, so that the directions differ.
func echoOf(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				b := make([]byte, 32<<10)
				for {
					n, err := c.Read(b)
					c.Write(inverted(b[:n]))
					if err != nil {
						return
					}
				}
			}()
		}
	}()
	return l
}

func inverted(b []byte) []byte {
	b = slices.Clone(b)
	for i := range b {
		b[i] ^= 0xff
	}
	return b
}

// exchange sends bytes and reads as many.
func exchange(t *testing.T, c net.Conn, b []byte) {
	t.Helper()
	c.SetDeadline(time.Now().Add(patience))
	go c.Write(b)
	got := make([]byte, len(b))
	if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, inverted(b)) {
		t.Fatalf("other bytes came back, %v", err)
	}
}

// The flows of a listener that begin during a capture are in its file with both sides, every byte with its owner, and nothing of the flows of
// another listener to the same member, which run at the same time.
func TestCaptureListener(t *testing.T) {
	need(t, "tshark")
	t.Parallel()
	member := echoOf(t)
	udp := udpMember(t)
	k := runFile(t, `listeners:
  web: {listen: "tcp://127.0.0.1:0", to: "tcp://{0}"}
  dns: {listen: "udp://127.0.0.1:0", to: "udp://{1}"}
  other: {listen: "tcp://127.0.0.1:0", to: "tcp://{0}"}
`, member.Addr(), udp)
	capture := k.capture(t, "--listener", "web")
	datagrams := k.capture(t, "--source", "127.0.0.1", "--listener", "dns")
	const flows, size = 4, 200_000
	var ids [flows]uint64
	var ports [flows]int
	var wg sync.WaitGroup
	for i := range flows {
		web, other := k.to("web"), k.to("other")
		ports[i] = portNumber(web.LocalAddr())
		wg.Go(func() {
			defer web.Close()
			exchange(t, web, owned(uint64(i), size))
		})
		wg.Go(func() {
			defer other.Close()
			exchange(t, other, owned(uint64(1000+i), size))
		})
	}
	query := k.to("dns")
	defer query.Close()
	exchange(t, query, owned(77, 500))
	wg.Wait()
	for _, r := range k.records(2 * flows) {
		from := r["client"].(string)
		for i, port := range ports {
			if strings.HasSuffix(from, fmt.Sprintf(":%d", port)) {
				ids[i], _ = strconv.ParseUint(r["id"].(string), 10, 64)
			}
		}
	}
	for _, c := range []*capturing{capture, datagrams} {
		c.interrupt()
		c.mustEnd()
	}
	got := payloads(t, capture.file)
	for i, id := range ids {
		sent, name := owned(uint64(i), size), fmt.Sprintf("flow %d ", id)
		for s, b := range got {
			if !strings.HasPrefix(s.on, name) {
				continue
			}
			want := inverted(sent)
			if s == (stream{name + "client", ports[i]}) || strings.HasSuffix(s.on, " member") && s.from != portNumber(member.Addr()) {
				want = sent
			}
			if !bytes.Equal(b, want) {
				t.Errorf("%v: %d bytes, which are others than the %d that were sent", s, len(b), len(want))
			}
			delete(got, s)
		}
	}
	if len(got) != 0 {
		t.Errorf("more is in the file: %d streams", len(got))
	}
	for s, b := range payloads(t, datagrams.file) {
		want := owned(77, 500)
		if (s.from == portNumber(k.at("dns"))) || s.from == portNumber(udp) {
			want = inverted(want)
		}
		if !bytes.Equal(b, want) {
			t.Errorf("%v: %d bytes of UDP, which are others", s, len(b))
		}
	}
	if n := len(payloads(t, datagrams.file)); n != 4 {
		t.Errorf("%d streams of datagrams, want 4", n)
	}
	events, err := k.admin.Events(k.ctx(), 0)
	if err != nil {
		t.Fatal(err)
	}
	begun := 0
	for _, e := range events.Events {
		if e.Kind == "capture" {
			begun++
		}
	}
	if begun != 2 {
		t.Errorf("%d events about captures, want 2", begun)
	}
}

// udpMember is a member that answers datagrams with their bytes inverted.
func udpMember(t *testing.T) net.Addr {
	t.Helper()
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	go func() {
		b := make([]byte, 2000)
		for {
			n, from, err := c.ReadFrom(b)
			if err != nil {
				return
			}
			c.WriteTo(inverted(b[:n]), from)
		}
	}()
	return c.LocalAddr()
}

// One open flow is captured from then on, also across a crash of the worker, and the capture ends with the flow.
func TestCaptureFlow(t *testing.T) {
	need(t, "tshark")
	t.Parallel()
	member := echoOf(t)
	k := runKept(t, `listeners: {web: {listen: "tcp://127.0.0.1:0", to: "tcp://{0}"}}`, member.Addr())
	mine, other := k.to("web"), k.to("web")
	defer mine.Close()
	defer other.Close()
	exchange(t, mine, owned(1, 1000))
	exchange(t, other, owned(2, 1000))
	k.settled(2)
	all, err := k.admin.Flows(k.ctx(), api.Filter{}, api.Page{})
	if err != nil {
		t.Fatal(err)
	}
	id := ""
	for _, f := range all.Flows {
		if int(f.Client.AddrPort.Port()) == portNumber(mine.LocalAddr()) {
			id = strconv.FormatUint(f.ID, 10)
		}
	}
	c := k.capture(t, "--flow", id)
	exchange(t, other, owned(3, 1000))
	exchange(t, mine, owned(4, 100_000))
	k.crash()
	exchange(t, other, owned(5, 1000))
	exchange(t, mine, owned(6, 100_000))
	mine.Close()
	c.mustEnd()
	c.mustHave(mine, member, append(owned(4, 100_000), owned(6, 100_000)...))
	if out, err := exec.Command("capinfos", c.file).CombinedOutput(); err != nil || !strings.Contains(string(out), "flow "+id+" client") {
		t.Errorf("capinfos: %v: %s", err, out)
	}
}

// A proxy names the client of each datagram, and one socket of it has those of two. The file of one client has nothing of the other one.
func TestCaptureShared(t *testing.T) {
	need(t, "tshark")
	t.Parallel()
	for which, flows := range map[string][]string{"each": {"--source", "192.0.2.1"}, "first": {"--listener", "dns"}} {
		t.Run(which, func(t *testing.T) {
			member := udpMember(t)
			k := runFile(t, `listeners: {dns: {listen: "udp://127.0.0.1:0", proxy-protocol: {from: 127.0.0.1, datagrams: {1}}, to: "udp://{0}"}}`, member, which)
			c := k.capture(t, flows...)
			proxy := k.to("dns")
			defer proxy.Close()
			ask := func(client string, owner uint64) {
				t.Helper()
				h := proxyproto.HeaderProxyFromAddrs(2, &net.UDPAddr{IP: net.ParseIP(client), Port: 4000}, &net.UDPAddr{IP: net.ParseIP("10.0.0.1"), Port: 53})
				header, err := h.Format()
				if err != nil {
					t.Fatal(err)
				}
				if _, err := proxy.Write(append(header, owned(owner, 500)...)); err != nil {
					t.Fatal(err)
				}
				b := make([]byte, 1000)
				if n, err := proxy.Read(b); err != nil || !bytes.Equal(b[:n], inverted(owned(owner, 500))) {
					t.Fatalf("other bytes came back, %v", err)
				}
			}
			ask("192.0.2.1", 1)
			if which == "each" {
				ask("192.0.2.2", 2)
				ask("192.0.2.1", 1)
			}
			c.interrupt()
			c.mustEnd()
			got := payloads(t, c.file)
			want := map[string]int{"each": 2, "first": 4}[which]
			if len(got) != want {
				t.Errorf("%d streams, want %d: %s", len(got), want, c.said)
			}
			for s, b := range got {
				if bytes.Contains(b, owned(2, 500)) || bytes.Contains(b, inverted(owned(2, 500))) {
					t.Errorf("%v has bytes of another client", s)
				}
				if !bytes.Contains(b, owned(1, 500)) && !bytes.Contains(b, inverted(owned(1, 500))) {
					t.Errorf("%v has not the client's bytes", s)
				}
			}
		})
	}
}

// A capture ends when the file is as large as it may be, or the flows were as many.
func TestCaptureBounds(t *testing.T) {
	need(t, "tshark")
	t.Parallel()
	k := runFile(t, `listeners: {web: {listen: "tcp://127.0.0.1:0", to: "tcp://{0}"}}`, echoOf(t).Addr())
	large, one := k.capture(t, "--source", "127.0.0.0/8", "--bytes", "64KiB", "--snap", "1000"), k.capture(t, "--listener", "web", "--flows", "1")
	c := k.to("web")
	port := portNumber(c.LocalAddr())
	for range 100 {
		exchange(t, c, owned(1, 2000))
	}
	c.Close()
	further := k.to("web")
	exchange(t, further, owned(2, 2000))
	further.Close()
	large.mustEnd()
	one.mustEnd()
	if info, err := os.Stat(large.file); err != nil || info.Size() > 68<<10 || info.Size() < 32<<10 || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	got := payloads(t, one.file)
	if len(got) != 4 || len(got[stream{"flow " + idOf(t, k, port) + " client", port}]) != 100*2000 {
		t.Errorf("%d streams of one flow", len(got))
	}
}

// idOf returns the id of the flow of a client's port, from the access log.
func idOf(t *testing.T, k *configured, port int) string {
	for _, r := range k.records(1) {
		if strings.HasSuffix(r["client"].(string), fmt.Sprintf(":%d", port)) {
			return r["id"].(string)
		}
	}
	t.Fatalf("no flow of port %d", port)
	return ""
}

// Without the privilege, and with a flow or listener that is not there, the command says what to do, and leaves no file.
func TestCaptureRefused(t *testing.T) {
	need(t, "setpriv")
	t.Parallel()
	k := runFile(t, `listeners: {web: {listen: "tcp://127.0.0.1:0", to: "echo:"}}`)
	file := filepath.Join(t.TempDir(), "f.pcapng")
	run := func(before []string, args ...string) string {
		t.Helper()
		all := append(append(before, binary, "capture", "--admin", "unix://"+k.dir+"/admin.sock", "-w", file), args...)
		out, err := exec.Command(all[0], all[1:]...).CombinedOutput()
		if err == nil {
			t.Errorf("%v has succeeded: %s", args, out)
		}
		if _, err := os.Stat(file); err == nil {
			t.Errorf("%v has left a file", args)
		}
		return string(out)
	}
	mustSay := func(out string, words ...string) {
		t.Helper()
		for _, w := range words {
			if !strings.Contains(out, w) {
				t.Errorf("%q does not say %q", out, w)
			}
		}
	}
	if os.Geteuid() == 0 {
		mustSay(run([]string{"setpriv", "--bounding-set=-net_raw", "--inh-caps=-net_raw"}, "--flow", "1"), "CAP_NET_RAW", "as root")
		mustSay(run(nil, "--flow", "1"), "open flow", "1")
		mustSay(run(nil, "--listener", "wbe"), "wbe", "web")
	}
	mustSay(run(nil), "--flow ID", "--source")
	mustSay(run(nil, "--flow", "1", "--source", "::1"), "either")
	mustSay(run(nil, "--flow", "1", "--for", "2h"), "59m")
}
