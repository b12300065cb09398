package testnet

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/penstock/penstock/internal/testwait"
)

// netnsEnv marks this process as the child of [Netns].
const netnsEnv = "PENSTOCK_TESTNET_NETNS"

// Netns runs the calling test in a child process with its own network namespace, which has only a
// loopback device, and in which it may do what CAP_NET_ADMIN allows. It returns true in the child,
// which then continues. In the parent it returns false: the test is over, with the child's result.
// It must be called first, in a test that is not a subtest. The setup lines are arguments of ip(8).
//
// If the machine lacks the tools for it, or forbids it, the test is skipped.
func Netns(t *testing.T, setup ...string) bool {
	t.Helper()
	if os.Getenv(netnsEnv) != "" {
		IP(t, append([]string{"link set lo up"}, setup...)...)
		return true
	}
	for _, tool := range []string{"unshare", "ip"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip("a network namespace needs unshare(1) of util-linux and ip(8) of iproute2:", err)
		}
	}
	args := []string{"--net"}
	if os.Geteuid() != 0 {
		args = append(args, "--map-root-user")
	}
	if out, err := exec.Command("unshare", append(args, "true")...).CombinedOutput(); err != nil {
		t.Skipf("this user may not make a network namespace: %v: %s", err, bytes.TrimSpace(out))
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("unshare", append(args, exe, "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=5m")...)
	cmd.Env = append(os.Environ(), "GORACE="+os.Getenv("GORACE")+" atexit_sleep_ms=0", netnsEnv+"=1")
	out, err := cmd.CombinedOutput()
	switch {
	case err != nil:
		t.Errorf("in a network namespace of its own: %v\n%s", err, out)
	case bytes.Contains(out, []byte("--- SKIP: "+t.Name()+" ")):
		t.Skipf("in a network namespace of its own:\n%s", out)
	case !bytes.Contains(out, []byte("--- PASS: "+t.Name()+" ")):
		t.Errorf("the child ran no such test:\n%s", out)
	}
	return false
}

// IP runs ip(8) with each line as its arguments, in the namespace of the test. A test must not call
// it outside its own namespace.
func IP(t *testing.T, lines ...string) {
	t.Helper()
	if os.Getenv(netnsEnv) == "" {
		t.Fatal("testnet: IP outside of Netns")
	}
	for _, line := range lines {
		if out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v: %s", line, err, out)
		}
		waitAddr(t, strings.Fields(line))
	}
}

// waitAddr waits until an address that was added can be sent to. The kernel adds the route of an
// IPv6 address from a work queue (addrconf_dad_work in net/ipv6/addrconf.c, Linux 6.18): packets
// sent before that are dropped, and counted as Ip6OutNoRoutes.
func waitAddr(t *testing.T, line []string) {
	t.Helper()
	if len(line) < 3 || line[0] != "addr" || line[1] != "add" {
		return
	}
	addr, _, _ := strings.Cut(line[2], "/")
	family := "-4"
	if strings.Contains(addr, ":") {
		family = "-6"
	}
	var out []byte
	var err error
	if !testwait.For(func() bool {
		out, err = exec.Command("ip", family, "route", "show", "table", "local").CombinedOutput()
		return err == nil && strings.Contains(string(out), "local "+addr+" dev ")
	}) {
		t.Fatalf("%s has no route: %v: %s", addr, err, out)
	}
}

// Sysctl sets a kernel parameter of the namespace, net.ipv4.ip_forward for
// example. A test that is in no namespace of its own must not call it.
func Sysctl(t *testing.T, name, value string) {
	t.Helper()
	if os.Getenv(netnsEnv) == "" {
		t.Fatal("testnet: Sysctl outside of Netns")
	}
	if err := os.WriteFile("/proc/sys/"+strings.ReplaceAll(name, ".", "/"), []byte(value), 0); err != nil {
		t.Fatal(err)
	}
}
