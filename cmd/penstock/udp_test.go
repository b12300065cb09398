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
	"time"
)

// need skips a test whose programs are not installed.
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

// A real DNS server under dnsperf, with the relay between: no query is lost.
func TestDNS(t *testing.T) {
	need(t, "nsd", "dnsperf")
	dir := t.TempDir()
	port := freePort(t)
	files := map[string]string{
		"zone": "$ORIGIN example.test.\n$TTL 60\n@ SOA ns hostmaster 1 60 60 60 60\n@ NS ns\nns A 192.0.2.1\n* A 192.0.2.2\n",
		"conf": fmt.Sprintf("server:\n  ip-address: 127.0.0.1\n  port: %s\n  username: \"\"\n  chroot: \"\"\n  zonesdir: %q\n  pidfile: \"\"\n  rrl-ratelimit: 0\n  database: \"\"\n  zonelistfile: %q\n  xfrdfile: %q\n"+
			"  cookie-secret-file: %q\nremote-control:\n  control-enable: no\nzone:\n  name: example.test\n  zonefile: zone\n", port, dir, filepath.Join(dir, "zones"), filepath.Join(dir, "xfrd"), filepath.Join(dir, "cookie")),
	}
	var queries strings.Builder
	for i := range 100 {
		fmt.Fprintf(&queries, "host%d.example.test A\n", i)
	}
	files["queries"] = queries.String()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	serve(t, "nsd", "-d", "-c", filepath.Join(dir, "conf"))
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) { // it answers on TCP as well
		if c, err := net.Dial("tcp", "127.0.0.1:"+port); err == nil {
			c.Close()
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("nsd does not come up")
		}
	}
	for _, flags := range [][]string{{"--replies=1"}, {"--no-gso", "--no-gro"}} {
		d := relay(t, append(flags, "udp://127.0.0.1:0", "udp://127.0.0.1:"+port)...)
		_, front, _ := net.SplitHostPort(strings.TrimPrefix(d.listener, "udp://"))
		out, err := exec.Command("dnsperf", "-s", "127.0.0.1", "-p", front, "-d", filepath.Join(dir, "queries"), "-c", "20", "-q", "100", "-n", "20").CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if !regexp.MustCompile(`Queries completed:\s+2000 \(100.00%\)`).Match(out) || !regexp.MustCompile(`NOERROR 2000 \(100.00%\)`).Match(out) {
			t.Errorf("%v: %s", flags, out)
		}
	}
}

// iperf3 in UDP mode: its control connection goes through a TCP relay on the
// same port, its datagrams through the UDP relay.
func TestIperfUDP(t *testing.T) {
	need(t, "iperf3")
	port := freePort(t)
	serve(t, "iperf3", "-s", "-B", "127.0.0.1", "-p", port)
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		b, err := os.ReadFile("/proc/net/tcp")
		var n int
		fmt.Sscan(port, &n)
		if err != nil || strings.Contains(string(b), fmt.Sprintf(":%04X 00000000:0000 0A", n)) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("iperf3 does not come up")
		}
	}
	tcp := relay(t, "tcp://127.0.0.1:0", "tcp://127.0.0.1:"+port)
	_, front, _ := net.SplitHostPort(strings.TrimPrefix(tcp.listener, "tcp://"))
	relay(t, "udp://127.0.0.1:"+front, "udp://127.0.0.1:"+port)
	for _, mode := range [][]string{{}, {"-R"}} {
		// With its usual buffers it loses some on a busy machine without any relay.
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
		if jerr := json.Unmarshal(out, &result); err != nil || jerr != nil {
			t.Fatalf("%v, %v: %s", err, jerr, out)
		}
		if sum := result.End.Sum; sum.Packets < 1000 || sum.Lost > sum.Packets/20 {
			t.Errorf("%v: %d of %d datagrams are lost", mode, sum.Lost, sum.Packets)
		}
	}
}
