package main

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
)

// need skips the test if a program is not installed.
func need(t *testing.T, tools ...string) {
	t.Helper()
	for _, tool := range tools {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed", tool)
		}
	}
}

// serve starts a server that ends with the test.
func serve(t *testing.T, argv ...string) {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
}

// serveDNS starts a real DNS server at its own loopback address, which no other test uses. The file
// has queries that it answers.
func serveDNS(t *testing.T, ip string) (addr, queries string) {
	t.Helper()
	need(t, "nsd", "dnsperf")
	dir := t.TempDir()
	port := testnet.Port(t)
	files := map[string]string{
		"zone": "$ORIGIN example.test.\n$TTL 60\n@ SOA ns hostmaster 1 60 60 60 60\n@ NS ns\nns A 192.0.2.1\n* A 192.0.2.2\n",
		"conf": fmt.Sprintf("server:\n  ip-address: %s\n  port: %s\n  username: \"\"\n  chroot: \"\"\n  zonesdir: %q\n  pidfile: \"\"\n  rrl-ratelimit: 0\n  database: \"\"\n  zonelistfile: %q\n  xfrdfile: %q\n"+
			"  cookie-secret-file: %q\nremote-control:\n  control-enable: no\nzone:\n  name: example.test\n  zonefile: zone\n", ip, port, dir, filepath.Join(dir, "zones"), filepath.Join(dir, "xfrd"), filepath.Join(dir, "cookie")),
	}
	var list strings.Builder
	for i := range 100 {
		fmt.Fprintf(&list, "host%d.example.test A\n", i)
	}
	files["queries"] = list.String()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	serve(t, "nsd", "-d", "-c", filepath.Join(dir, "conf"))
	addr = net.JoinHostPort(ip, port)
	testwait.Until(t, "nsd answers, on TCP as well", func() bool {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	return addr, filepath.Join(dir, "queries")
}

// mustResolve makes dnsperf send 2,000 queries, and expects as many answers.
func mustResolve(t *testing.T, listener, queries string) {
	t.Helper()
	host, port, _ := net.SplitHostPort(strings.TrimPrefix(listener, "udp://"))
	out, err := exec.Command("dnsperf", "-s", host, "-p", port, "-d", queries, "-c", "20", "-q", "100", "-n", "20", "-t", fmt.Sprint(int(patience.Seconds()))).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if !regexp.MustCompile(`Queries completed:\s+2000 \(100.00%\)`).Match(out) || !regexp.MustCompile(`NOERROR 2000 \(100.00%\)`).Match(out) {
		t.Errorf("%s", out)
	}
}

// A real DNS server under dnsperf, with the relay in between: no query is lost.
func TestDNS(t *testing.T) {
	server, queries := serveDNS(t, "127.0.53.1")
	for _, flags := range [][]string{{"--replies=1"}, {"--no-gso", "--no-gro"}} {
		d := relay(t, append(flags, "udp://127.0.0.1:0", "udp://"+server)...)
		mustResolve(t, d.listener, queries)
	}
}

// The same as operators run it: two servers with checks, one of which does not exist.
func TestDNSFront(t *testing.T) {
	server, queries := serveDNS(t, "127.0.53.2")
	d := runFile(t, `
listeners:
  dns:
    listen: udp://127.0.0.1:0
    replies: 1
    to: servers
groups:
  servers:
    balance: random
    members: ["udp://{0}", "udp://127.0.53.3:9"]
    check:
      udp: {every: 100ms, timeout: 60s, send: "hex:5053010000010000000000000000020001", expect: "hex:5053"}
`, server)
	testwait.Until(t, "one member is down and one up", func() bool {
		g, err := d.admin.Group(d.ctx(), "servers")
		return err == nil && g.Members[0].State == "up" && g.Members[1].State == "down"
	})
	at, err := d.admin.Listeners(d.ctx())
	if err != nil {
		t.Fatal(err)
	}
	mustResolve(t, at.Listeners[0].Address, queries)
	d.signal(os.Interrupt)
	d.mustExit(0)
	var sent, received float64
	for _, r := range d.records(1) {
		mustBe(t, r, "member", "udp://"+server, "listener", "dns", "cause", "answered")
		sent, received = sent+r["datagrams_up"].(float64), received+r["datagrams_down"].(float64)
	}
	if sent < 2000 || received != sent {
		t.Errorf("the records have %v queries and %v answers", sent, received)
	}
}

// iperf3 in UDP mode: its control connection goes through a TCP relay on the
// same port, its datagrams through the UDP relay.
func TestIperfUDP(t *testing.T) {
	need(t, "iperf3")
	for _, mode := range [][]string{{}, {"-R"}} {
		// A process that has no CPU for a while loses what does not fit into its socket's buffer.
		testwait.Until(t, "next to nothing is lost", func() bool {
			packets, lost := iperfUDP(t, mode...)
			if packets < 1000 || lost > packets/20 {
				t.Logf("%v: %d of %d datagrams are lost", mode, lost, packets)
				return false
			}
			return true
		})
	}
}

func iperfUDP(t *testing.T, mode ...string) (packets, lost int) {
	port := iperf(t)
	front := testnet.Port(t)
	relay(t, "tcp://127.0.0.1:"+front, "tcp://127.0.0.1:"+port)
	udp := relay(t, "udp://127.0.0.1:"+front, "udp://127.0.0.1:"+port)
	// With its default buffers it loses some on a busy machine even without a relay.
	args := append([]string{"-u", "-c", "127.0.0.1", "-p", front, "-b", "20M", "-w", "1M", "-t", "1", "-l", "1200", "-J"}, mode...)
	out, err := exec.Command("iperf3", args...).Output()
	var result struct {
		Error string
		End   struct {
			Sum struct {
				Packets int
				Lost    int `json:"lost_packets"`
			}
		}
	}
	if jerr := json.Unmarshal(out, &result); err != nil || jerr != nil || result.Error != "" {
		t.Fatalf("%v, %v: %s; the relay: %v", err, jerr, out, udp.lines)
	}
	return result.End.Sum.Packets, result.End.Sum.Lost
}

// iperf starts an iperf3 server for one client: a second client is reset, or told that the server
// is busy, until the server is done with the first. For that reason, the test does not connect to
// find out whether the server listens.
func iperf(t *testing.T) (port string) {
	t.Helper()
	port = testnet.Port(t)
	serve(t, "iperf3", "-s", "-B", "127.0.0.1", "-p", port)
	testwait.Until(t, "iperf3 listens", func() bool {
		b, err := os.ReadFile("/proc/net/tcp")
		var n int
		fmt.Sscan(port, &n)
		return err != nil || strings.Contains(string(b), fmt.Sprintf(":%04X 00000000:0000 0A", n))
	})
	return port
}
