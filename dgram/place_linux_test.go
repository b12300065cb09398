package dgram

import (
	"net/netip"
	"os"
	"os/exec"
	"testing"
	"time"
)

// inside tells a test binary that it runs in a namespace of its own.
const inside = "PENSTOCK_TEST_NAMESPACE"

// inNamespace runs the calling test again in a new network namespace with a
// loopback device that setup, a shell script, has prepared. It returns true
// there, and false outside when the run is over.
func inNamespace(t *testing.T, setup string) bool {
	t.Helper()
	if os.Getenv(inside) != "" {
		return true
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("unshare", "-rn", "ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
		t.Skipf("no network namespaces for this user: %v\n%s", err, out)
	}
	cmd := exec.Command("unshare", "-rn", "sh", "-ec", setup+`; exec "$0" "$@"`, self, "-test.run", "^"+t.Name()+"$", "-test.v", "-test.timeout", "30s")
	cmd.Env = append(os.Environ(), inside+"=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
	return false
}

// TestLinkLocal sends to an address with a zone, and reads one.
func TestLinkLocal(t *testing.T) {
	if !inNamespace(t, "ip link set lo up; ip addr add fe80::1/64 dev lo nodad") {
		return
	}
	eachLevel(t, func(t *testing.T, l level) {
		recv, send := listen(t, "udp6", "[fe80::1%lo]:0"), listen(t, "udp6", "[fe80::1%lo]:0")
		r, s := l.conn(t, recv), l.conn(t, send)
		for _, zone := range []string{"lo", "1"} {
			to := netip.AddrPortFrom(netip.MustParseAddr("fe80::1").WithZone(zone), local(recv).Port())
			mustWrite(t, s, []Message{{Buf: []byte("ab"), Addr: to}, {Buf: []byte("cd"), Addr: to}})
			for _, g := range collect(t, r, 2) {
				if g.m.Addr != local(send) || g.m.Addr.Addr().Zone() != "lo" {
					t.Errorf("from %s, want %s", g.m.Addr, local(send))
				}
			}
		}
		if l.name == "portable" {
			return
		}
		ms, in := []Message{{Buf: []byte("x"), Addr: local(recv)}}, Batch(1)
		if n := testing.AllocsPerRun(50, func() {
			mustWrite(t, s, ms)
			if _, err := r.ReadBatch(in); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%v allocations with a zone", n)
		}
	})
}

// TestSmallMTU: runs whose datagrams do not fit the path are refused by the
// kernel, and their datagrams then leave in fragments, as they do by themselves.
func TestSmallMTU(t *testing.T) {
	if !inNamespace(t, "ip link set lo up mtu 1500") {
		return
	}
	p := newPath(t, "v4")
	send, recv := bestLevel.conn(t, p.send), bestLevel.conn(t, p.recv)
	for _, size := range []int{1472, 1473, 4000, 1000} {
		var ms []Message
		for i := range 10 {
			ms = append(ms, Message{Buf: payload(i, size), Addr: p.to})
		}
		before := send.Stats()
		mustWrite(t, send, ms)
		if diff := sameDatagrams(collect(t, recv, 10), datagrams(ms)); diff != "" {
			t.Fatal(diff)
		}
		s := send.Stats()
		runs, fallbacks := s.Runs-before.Runs, s.Fallbacks-before.Fallbacks
		if fits := size <= 1472; fits != (runs == 1) || fits == (fallbacks == 1) && size == 1473 {
			t.Errorf("%d bytes: %d runs, %d fallbacks", size, runs, fallbacks)
		}
	}
}

// TestPacing gives the loopback device a queue that honours SO_TXTIME, and
// expects each datagram no earlier than its time.
func TestPacing(t *testing.T) {
	if os.Getenv(inside) == "" {
		out, err := exec.Command("unshare", "-rn", "sh", "-ec", "ip link set lo up; tc qdisc add dev lo root fq").CombinedOutput()
		if err != nil {
			t.Skipf("no fq queueing discipline here: %v\n%s", err, out)
		}
	}
	if !inNamespace(t, "ip link set lo up; tc qdisc add dev lo root fq") {
		return
	}
	p := newPath(t, "v4")
	send := bestLevel.with(func(c *Config) { c.Pace = true }).conn(t, p.send)
	recv := bestLevel.with(func(c *Config) { c.Time = true }).conn(t, p.recv)
	start := time.Now()
	var ms []Message
	for i := range 5 {
		ms = append(ms, Message{Buf: payload(i, 100), Addr: p.to, Time: start.Add(time.Duration(i) * 20 * time.Millisecond)})
	}
	mustWrite(t, send, ms)
	if took := time.Since(start); took > 50*time.Millisecond {
		t.Errorf("the write waited for %v itself", took)
	}
	for i := range ms {
		collect(t, recv, 1)
		if early := time.Until(ms[i].Time); early > time.Millisecond {
			t.Errorf("datagram %d came %v early", i, early)
		}
	}
}
