package packets

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
)

// script is a capture, and the texts of the packets that it is given.
type script struct {
	*Capture
	t   *testing.T
	out bytes.Buffer
}

func newScript(t *testing.T, change func(*Config)) *script {
	cfg := Config{Snap: 1 << 18, MaxBytes: 1 << 20, MaxFlows: 10, Program: "test", About: "a test"}
	if change != nil {
		change(&cfg)
	}
	s := &script{t: t}
	s.Capture = New(&s.out, cfg)
	return s
}

// take takes a packet with a text that came some time after the epoch.
func (s *script) take(after time.Duration, protocol uint8, from, to string, flags uint8, text string) {
	s.takeOn(1, after, protocol, from, to, flags, text)
}

func (s *script) takeOn(device int, after time.Duration, protocol uint8, from, to string, flags uint8, text string) {
	b := segment(protocol, from, to, flags, text)
	s.Take(&Packet{At: epoch.Add(after), Data: b, Length: len(b), Device: device})
	clear(b) // it keeps a copy
}

// blocks closes the capture and reads the file.
func (s *script) blocks() []block {
	s.t.Helper()
	if err := s.Close(epoch.Add(time.Hour), 7); err != nil {
		s.t.Fatal(err)
	}
	all, err := read(s.out.Bytes())
	if err != nil {
		s.t.Fatal(err)
	}
	return all
}

// texts closes the capture and returns the interface, direction and text of each packet of the file.
func (s *script) texts() (list []string) {
	s.t.Helper()
	var names []string
	for _, b := range s.blocks() {
		switch b.kind {
		case blockInterface:
			names = append(names, b.options[interfaceName])
		case blockPacket:
			head := 40
			if b.data[9] == UDP {
				head = 28
			}
			to := map[byte]string{inbound: "in", outbound: "out"}[b.options[packetFlags][0]]
			list = append(list, strings.TrimPrefix(names[b.on], "flow ")+" "+to+" "+string(b.data[head:]))
		}
	}
	return list
}

func (s *script) must(want ...string) {
	s.t.Helper()
	if got := s.texts(); !slices.Equal(got, want) {
		s.t.Errorf("the file has\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

const (
	client = "192.0.2.1:4000"
	other  = "192.0.2.2:4000"
	local  = "10.0.0.1:443"
	mine   = "10.0.0.1:5000" // of the relay, to the member
	member = "10.0.0.9:80"
)

const ms = time.Millisecond

// Packets that came before the daemon has told whose they are count, and those of others do not.
func TestWhose(t *testing.T) {
	s := newScript(t, nil)
	s.take(0, TCP, client, local, flagSYN, "1")
	s.take(1*ms, TCP, local, client, flagSYN|flagACK, "2")
	s.take(2*ms, TCP, other, local, flagSYN, "of another client")
	s.take(3*ms, TCP, "10.0.0.1:5001", member, flagSYN, "to the member, of another flow")
	s.take(20*ms, TCP, mine, member, flagSYN, "3")
	s.take(21*ms, TCP, member, mine, flagSYN|flagACK, "4")
	s.take(22*ms, UDP, mine, member, 0, "UDP between the same addresses")
	s.Look(epoch.Add(Slack - ms))
	s.Tell(web(1, client, 5000, 19*ms))
	s.take(30*ms, TCP, client, local, flagACK, "5")
	s.take(31*ms, TCP, mine, member, flagACK, "6")
	s.must("1 client in 1", "1 client out 2", "1 member out 3", "1 member in 4", "1 client in 5", "1 member out 6")
}

// A port that another flow had before, and will have after, has only the packets of this one.
func TestReused(t *testing.T) {
	s := newScript(t, nil)
	s.take(0, TCP, mine, member, flagACK, "of the flow before")
	s.take(9*ms, TCP, mine, member, flagRST, "of the flow before")
	s.take(40*ms, TCP, mine, member, flagSYN, "1")
	f := web(1, client, 5000, 40*ms)
	s.Tell(f)
	s.take(50*ms, TCP, mine, member, flagFIN|flagACK, "2")
	f.Ended, f.Cause = epoch.Add(50*ms), "end"
	s.Tell(f)
	s.take(51*ms, TCP, member, mine, flagFIN|flagACK, "3")
	s.take(52*ms, TCP, mine, member, flagACK, "4")
	s.take(60*ms, TCP, mine, member, flagSYN, "of the flow after")
	s.take(61*ms, TCP, member, mine, flagSYN|flagACK, "of the flow after")
	s.must("1 member out 1", "1 member out 2", "1 member in 3", "1 member out 4")
}

// If both flows are captured, each has its own.
func TestSucceeded(t *testing.T) {
	s := newScript(t, nil)
	first, second := web(1, client, 5000, 0), web(2, client, 5000, 60*ms)
	s.Tell(first)
	s.take(1*ms, TCP, client, local, flagACK, "1")
	s.take(2*ms, TCP, mine, member, flagACK, "2")
	first.Ended, first.Cause = epoch.Add(10*ms), "end"
	s.Tell(first)
	s.take(50*ms, TCP, client, local, flagSYN, "3")
	s.take(61*ms, TCP, mine, member, flagSYN, "4")
	s.Tell(second)
	s.must("1 client in 1", "1 member out 2", "2 client in 3", "2 member out 4")
}

// Datagrams of a flow end with it.
func TestDatagrams(t *testing.T) {
	s := newScript(t, nil)
	f := &api.CaptureFlow{ID: 3, Kind: "datagram", Listener: "dns", Group: "udp://10.0.0.9:80", Member: "udp://10.0.0.9:80", Client: udp(client), Peer: udp(client),
		Local: udp(local), Upstream: udp(member), UpstreamLocal: udp(mine), Since: epoch}
	s.take(1*ms, UDP, client, local, 0, "1")
	s.take(2*ms, UDP, mine, member, 0, "2")
	s.Tell(f)
	s.take(3*ms, UDP, member, mine, 0, "3")
	s.take(4*ms, UDP, local, client, 0, "4")
	f.Ended = epoch.Add(5 * ms)
	s.Tell(f)
	s.take(6*ms, UDP, mine, member, 0, "of another flow")
	s.must("3 client in 1", "3 member out 2", "3 member in 3", "3 client out 4")
}

// Of a proxy's socket that has the datagrams of several clients no packet can be told to be of one of them.
func TestShared(t *testing.T) {
	s := newScript(t, nil)
	s.Tell(&api.CaptureFlow{ID: 3, Kind: "datagram", Listener: "dns", Group: "udp://10.0.0.9:80", Member: "udp://10.0.0.9:80", Client: udp("198.51.100.1:9"), Peer: udp(client),
		Shared: true, Local: udp(local), Upstream: udp(member), UpstreamLocal: udp(mine), Since: epoch})
	s.take(1*ms, UDP, client, local, 0, "of another client of the proxy")
	s.take(2*ms, UDP, mine, member, 0, "1")
	s.take(3*ms, UDP, local, client, 0, "of another client of the proxy")
	s.must("3 member out 1")
	if about := s.sides[0].about(); !strings.Contains(about, "left out") {
		t.Errorf("it says %q", about)
	}
}

// A flow goes on to another member: both have their packets.
func TestNextMember(t *testing.T) {
	s := newScript(t, nil)
	f := web(1, client, 5000, 0)
	s.Tell(f)
	s.take(1*ms, TCP, mine, member, flagSYN, "1")
	next := *f
	next.Member, next.Upstream, next.UpstreamLocal, next.Since = "two", tcp("10.0.0.8:80"), tcp("10.0.0.1:5002"), epoch.Add(2*ms)
	s.Tell(&next)
	s.take(3*ms, TCP, "10.0.0.1:5002", "10.0.0.8:80", flagSYN, "2")
	s.take(4*ms, TCP, member, mine, flagRST, "3")
	s.take(5*ms, TCP, mine, member, flagSYN, "of another flow, which has the port now")
	s.take(6*ms, TCP, member, mine, flagSYN|flagACK, "of another flow, which has the port now")
	var told []string
	for _, b := range s.blocks() {
		if b.kind == blockInterface {
			told = append(told, b.options[interfaceDescription])
		}
	}
	want := []string{"from 10.0.0.1:5000 to member app/one at tcp://10.0.0.9:80", "from 10.0.0.1:5002 to member app/two at tcp://10.0.0.8:80"}
	if !slices.Equal(told, want) {
		t.Errorf("%q, want %q", told, want)
	}
	s.must("1 member out 1", "1 member out 2", "1 member in 3")
}

// The end of a flow may not be told. Its port is used again by a flow that is not captured, which begins with another SYN.
func TestEndNotTold(t *testing.T) {
	for _, seen := range []bool{true, false} { // the flow's own SYN
		s := newScript(t, nil)
		s.Tell(web(1, client, 5000, 0))
		begin := byte(flagSYN)
		if !seen {
			begin = flagACK
		}
		s.take(1*ms, TCP, mine, member, begin, "1")
		s.take(1001*ms, TCP, mine, member, begin, "2") // again
		s.take(1002*ms, TCP, member, mine, flagACK, "3")
		b := segment(TCP, mine, member, flagSYN, "of another flow")
		b[20+7] = 99 // its number
		s.Take(&Packet{At: epoch.Add(2000 * ms), Data: b, Length: len(b), Device: 1})
		s.take(2001*ms, TCP, member, mine, flagSYN|flagACK, "of another flow")
		s.must("1 member out 1", "1 member out 2", "1 member in 3")
	}
}

// A flow that was never connected, and whose local address nobody knows, has its client's side.
func TestRefused(t *testing.T) {
	s := newScript(t, nil)
	s.take(0, TCP, client, local, flagSYN, "1")
	s.take(1*ms, TCP, local, client, flagRST, "2")
	s.Tell(&api.CaptureFlow{ID: 4, Kind: "stream", Listener: "web", Client: tcp(client), Peer: tcp(client), Since: epoch, Ended: epoch.Add(ms), Cause: "refused", Reason: "denied"})
	all := s.blocks()
	var comments []string
	for _, b := range all {
		if b.kind == blockPacket {
			comments = append(comments, b.options[optionComment])
		}
	}
	want := []string{"flow 4, the side of its client: client tcp://192.0.2.1:4000, listener web, no member", "flow 4 ended: refused, denied"}
	if !slices.Equal(comments, want) {
		t.Errorf("%q, want %q", comments, want)
	}
}

// A packet that passes two devices is in the file once, and when the first of them is silent, those of the other one are.
func TestDevices(t *testing.T) {
	s := newScript(t, nil)
	s.Tell(web(1, client, 5000, 0))
	for i, text := range []string{"1", "2"} {
		after := time.Duration(i) * 10 * ms
		s.takeOn(2, after, TCP, client, local, flagACK, text)
		s.takeOn(3, after, TCP, client, local, flagACK, text)
		s.takeOn(3, after, TCP, local, client, flagACK, text)
		s.takeOn(2, after, TCP, local, client, flagACK, text)
	}
	s.takeOn(3, 1100*ms, TCP, client, local, flagACK, "3")
	s.must("1 client in 1", "1 client out 1", "1 client in 2", "1 client out 2", "1 client in 3")
}

// A file has no more bytes than it may, but for the statistics, and no more flows.
func TestBounds(t *testing.T) {
	const most = 10_000
	s := newScript(t, func(c *Config) { c.MaxBytes, c.MaxFlows, c.Snap = most, 1, 64 })
	s.Tell(web(1, client, 5000, 0))
	further := web(2, other, 5001, 0)
	s.Tell(further)
	further.Ended = epoch.Add(ms)
	s.Tell(further) // counts once
	if s.Skipped != 1 || s.Flows() != 1 {
		t.Errorf("%d flows, %d skipped", s.Flows(), s.Skipped)
	}
	for i := range 200 {
		s.take(time.Duration(i)*ms, TCP, client, local, flagACK, strings.Repeat("x", 1000))
		s.take(time.Duration(i)*ms, TCP, other, local, flagACK, "of a flow too many")
	}
	s.Look(epoch.Add(time.Minute))
	if !s.Full || s.Written() > most || s.Written() < most*3/4 {
		t.Errorf("full: %v, %d bytes", s.Full, s.Written())
	}
	packets := int64(0)
	for _, b := range s.blocks() {
		if b.kind == blockPacket {
			packets++
			if b.length != 1040 || len(b.data) != 64 {
				t.Fatalf("%d bytes of %d", len(b.data), b.length)
			}
		}
	}
	if packets != s.Packets || packets == 0 {
		t.Errorf("%d packets, and it says %d", packets, s.Packets)
	}
}

// What waits is bounded: the oldest packets are looked at early.
func TestQueue(t *testing.T) {
	s := newScript(t, func(c *Config) { c.MaxBytes = 1 << 30 })
	text := strings.Repeat("x", 60_000)
	for i := range maxQueued/60_000 + 10 {
		s.take(time.Duration(i), TCP, client, local, flagACK, text)
	}
	if s.queued > maxQueued || s.Overflow == 0 {
		t.Errorf("%d bytes wait, %d packets were looked at early", s.queued, s.Overflow)
	}
	small := newScript(t, nil)
	for i := range maxQueued / 100 {
		small.take(time.Duration(i), TCP, client, local, flagACK, "")
	}
	if small.Overflow == 0 {
		t.Errorf("%d small packets wait, each of which takes more memory than its data", len(small.queue))
	}
	before := s.Overflow
	s.Tell(web(1, client, 5000, 0))
	s.take(time.Second, TCP, client, local, flagACK, text)
	if s.Overflow != before {
		t.Errorf("a packet of a known flow counts as dropped")
	}
}

// What a file says of its flows.
func TestWords(t *testing.T) {
	s := newScript(t, nil)
	f := web(1, client, 5000, 0)
	f.SNI, f.ClientTLS, f.Client = "a.test", true, tcp("198.51.100.1:99")
	s.Tell(f)
	s.take(1*ms, TCP, client, local, flagACK, "text")
	s.take(2*ms, TCP, mine, member, flagACK, "text")
	f.Ended, f.Cause, f.Error = epoch.Add(3*ms), "upstream-reset", "read: connection reset by peer"
	s.Tell(f)
	s.take(4*ms, TCP, member, mine, flagRST, "")
	var say []string
	for _, b := range s.blocks() {
		say = append(say, fmt.Sprintf("%d: %s; %s; %s", b.kind, b.options[interfaceName], b.options[interfaceDescription], b.options[optionComment]))
		if b.kind == blockInterface && (b.linkType != linkRaw || b.options[interfaceResolution] != "\x09") {
			t.Errorf("link type %d, resolution %q", b.linkType, b.options[interfaceResolution])
		}
	}
	side := func(name string) string {
		return "flow 1, the side of its " + name + ": client tcp://198.51.100.1:99, listener web, through the proxy tcp://192.0.2.1:4000, route r, server name a.test, member app/one at tcp://10.0.0.9:80 from 10.0.0.1:5000"
	}
	tls := "; TLS of this side ends at the relay, and its keys are not in the file"
	end := "flow 1 ended: upstream-reset: read: connection reset by peer"
	want := []string{
		"168627466: ; ; a test",
		"1: flow 1 client; from tcp://192.0.2.1:4000 to listener web; " + side("client") + tls,
		"6: \x01\x00\x00\x00; ; " + side("client") + tls,
		"1: flow 1 member; from 10.0.0.1:5000 to member app/one at tcp://10.0.0.9:80; " + side("member"),
		"6: \x02\x00\x00\x00; ; " + side("member"),
		"6: \x01\x00\x00\x00; ; " + end,
	}
	if len(say) < len(want) {
		t.Fatalf("%q", say)
	}
	for i := range want {
		if say[i] != want[i] {
			t.Errorf("\n got %q\nwant %q", say[i], want[i])
		}
	}
	for _, line := range say[len(want):] {
		if !strings.HasPrefix(line, "5: ") || !strings.HasSuffix(line, end) {
			t.Errorf("statistics: %q", line)
		}
	}
}

// Wireshark's tools read what is written, with names, comments, nanoseconds and statistics.
func TestTshark(t *testing.T) {
	tshark, err := exec.LookPath("tshark")
	if err != nil {
		t.Skip("tshark is not installed")
	}
	s := newScript(t, nil)
	s.Tell(web(1, client, 5000, 0))
	s.take(1*ms, TCP, client, local, flagACK, "GET / HTTP/1.1\r\n\r\n")
	s.take(2*ms, TCP, mine, member, flagACK, "text of ü")
	s.blocks()
	file := filepath.Join(t.TempDir(), "f.pcapng")
	if err := os.WriteFile(file, s.out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(tshark, "-r", file, "-T", "fields", "-E", "separator=|", "-e", "frame.time_epoch", "-e", "frame.interface_name", "-e", "ip.src", "-e", "tcp.dstport", "-e", "tcp.len", "-e", "frame.comment").Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	about := "client tcp://192.0.2.1:4000, listener web, route r, member app/one at tcp://10.0.0.9:80 from 10.0.0.1:5000"
	want := "1800000000.124456789|flow 1 client|192.0.2.1|443|18|flow 1, the side of its client: " + about +
		"\n1800000000.125456789|flow 1 member|10.0.0.1|80|10|flow 1, the side of its member: " + about + "\n"
	if string(out) != want {
		t.Errorf("tshark reads\n%swant\n%s", out, want)
	}
	if capinfos, err := exec.LookPath("capinfos"); err == nil {
		out, err := exec.Command(capinfos, file).CombinedOutput()
		if err != nil || !strings.Contains(string(out), "Number of packets:   2") || strings.Count(string(out), "Number of stat entries = 1") != 2 {
			t.Errorf("capinfos: %v: %s", err, out)
		}
	}
}
