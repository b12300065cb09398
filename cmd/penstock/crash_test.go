package main

import (
	"bufio"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
)

// crashes are the two ways in which a worker has fewer privileges than the one that bound its sockets: it is another user, or may not bind
// the port.
var crashes = []struct{ name, sandbox string }{
	{"user", "sandbox: {user: '65534:65534'}\n"},
	{"low port", ""},
}

// lowAddress returns an address of this host with a privileged port, which no other test has.
func lowAddress(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root binds a privileged port, and becomes another user")
	}
	if first, err := os.ReadFile("/proc/sys/net/ipv4/ip_unprivileged_port_start"); err == nil && strings.TrimSpace(string(first)) == "0" {
		t.Skip("no port is privileged here")
	}
	n := uint32(os.Getpid())<<8 | lowAddresses.Add(1)&0xff
	return fmt.Sprintf("127.%d.%d.%d:81", 22+n>>16&0x3f, n>>8&0xff, n&0xff)
}

var lowAddresses atomic.Uint32

// needsSandbox skips a test whose next worker must have fewer privileges. With the race detector the program is linked with cgo, and
// its sandbox leaves capabilities and the user as they are.
func needsSandbox(t *testing.T) {
	t.Helper()
	if testnet.RaceEnabled {
		t.Skip("the program is linked with cgo: its sandbox leaves it its capabilities")
	}
}

// sockets returns how many TCP sockets listen at an address. proc_net_tcp(5).
func sockets(t *testing.T, address string) (n int) {
	t.Helper()
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open("/proc/net/tcp")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	ip := at.Addr().As4()
	own := fmt.Sprintf("%02X%02X%02X%02X:%04X", ip[3], ip[2], ip[1], ip[0], at.Port())
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if f := strings.Fields(lines.Text()); len(f) > 3 && f[1] == own && f[3] == "0A" {
			n++
		}
	}
	return n
}

// lowKeeper starts a daemon with a listener at an address whose sockets the next worker may not bind, unless a listener of UDP has a
// privileged port, too: then it keeps the capability, for the end of a drain.
func lowKeeper(t *testing.T, address, udp, engine, sandbox, keeper string, by ...string) *kept {
	t.Helper()
	needsSandbox(t)
	dir := shortDir(t)
	if err := os.Chmod(dir, 0o755); err != nil { // the worker reads its configuration itself, whoever it is
		t.Fatal(err)
	}
	k := &kept{configured: &configured{dir: dir, file: dir + "/penstock.yaml"}}
	k.write(t, engine+"reload: {watch: false}\nlisteners: {tcp: {listen: 'tcp://"+address+"', to: 'echo:'}, udp: {listen: 'udp://"+udp+"', to: 'echo:'}}\nkeeper: {keep-after: 0, max-restart-delay: 100ms, "+keeper+"}\n"+sandbox)
	k.begin(t, exec.Command("env", append(by, binary, "run", "-c", k.file)...))
	k.endWorker(t)
	k.showLog()
	testwait.Until(t, "the API answers", k.answers)
	return k
}

// showLog shows the log if the test fails.
func (k *kept) showLog() {
	k.t.Cleanup(func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		for i := 0; k.t.Failed() && i < len(k.lines); i++ {
			k.t.Log(k.lines[i])
		}
	})
}

// growing checks that a worker after a crash has more loops than sockets, serves with those, and hands over to another worker which has one for
// each loop. do kills the worker, and reports whether the next one comes after a crash for sure.
func (k *kept) growing(address string, loops int, do func() (crash bool)) {
	k.t.Helper()
	a, u := testnet.Dial(k.t, k.at("tcp")), dialUDP(k.t, k.at("udp").String())
	mustPing(k.t, a)
	mustPing(k.t, u)
	k.holds(2)
	before := sockets(k.t, address)
	if before >= loops {
		k.t.Fatalf("%d sockets, and is to have %d loops", before, loops)
	}
	crash := do()
	mustPing(k.t, a)
	mustPing(k.t, u)
	if crash {
		line := k.line("this worker goes on without what it cannot have")
		if text, _ := line["error"].(string); !strings.Contains(text, fmt.Sprintf("listener tcp: %d sockets for %d loops", before, loops)) {
			k.t.Errorf("it goes on without %q", text)
		}
	}
	for range 4 * loops {
		c := testnet.Dial(k.t, a.RemoteAddr())
		mustPing(k.t, c)
		c.Close()
	}
	testwait.Until(k.t, "each loop has a socket", func() bool { return sockets(k.t, address) == loops })
	testwait.Until(k.t, "the worker with all sockets answers", func() bool {
		s, err := k.admin.Status(k.ctx())
		return err == nil && s.Keeper != nil && s.Keeper.Last.Reason == "restart" && len(s.Loops) == loops
	})
	mustPing(k.t, a)
	mustPing(k.t, u)
	mustPing(k.t, testnet.Dial(k.t, a.RemoteAddr()))
	mustPing(k.t, dialUDP(k.t, u.RemoteAddr().String()))
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, line := range k.lines {
		if line["msg"] == "cannot start" {
			k.t.Errorf("%v", line)
		}
	}
}

func dialUDP(t *testing.T, address string) net.Conn {
	t.Helper()
	c, err := net.Dial("udp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// oneCPU returns the first of the CPUs of this process, and what gives a daemon all of them.
func oneCPU(t *testing.T) (first string, all func(k *kept)) {
	t.Helper()
	need(t, "taskset")
	if runtime.NumCPU() < 2 {
		t.Skip("there is one CPU")
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(status), "Cpus_allowed_list:\t")
	list, _, _ = strings.Cut(list, "\n")
	return list[:strings.IndexAny(list, "-,")], func(k *kept) {
		k.t.Helper()
		if out, err := exec.Command("taskset", "-a", "-c", "-p", list, strconv.Itoa(k.cmd.Process.Pid)).CombinedOutput(); err != nil {
			k.t.Errorf("%v: %s", err, out)
		}
	}
}

// CPUs that a service gets after its start are more loops after a crash.
func TestCrashWithMoreCPUs(t *testing.T) {
	t.Parallel()
	first, all := oneCPU(t)
	for _, c := range crashes {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			address := lowAddress(t)
			k := lowKeeper(t, address, "127.0.0.1:0", "", c.sandbox, "healthy-after: 0", "taskset", "-c", first)
			k.growing(address, runtime.NumCPU(), func() bool {
				all(k)
				k.end(syscall.SIGKILL)
				return true
			})
		})
	}
}

// And if the worker has kept the capability, for a listener of UDP, they have their sockets at once.
func TestCrashWithMoreCPUsAndCapability(t *testing.T) {
	t.Parallel()
	first, all := oneCPU(t)
	for _, c := range crashes {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			address := lowAddress(t)
			k := lowKeeper(t, address, address, "", c.sandbox, "healthy-after: 0", "taskset", "-c", first)
			a, u := testnet.Dial(t, k.at("tcp")), dialUDP(t, address)
			mustPing(t, a)
			mustPing(t, u)
			k.holds(2)
			all(k)
			k.end(syscall.SIGKILL)
			k.started(1)
			if n := sockets(t, address); n != runtime.NumCPU() {
				t.Errorf("%d sockets, want %d", n, runtime.NumCPU())
			}
			mustPing(t, a)
			mustPing(t, u)
			mustPing(t, testnet.Dial(t, a.RemoteAddr()))
			mustPing(t, dialUDP(t, address))
			k.mustHaveEverything()
		})
	}
}

// More loops by a reload, whose worker is to be replaced, and dies before that: while the next one begins, and while an upgrade is on
// trial, whose end the replacement waits for.
func TestCrashBeforeReplacement(t *testing.T) {
	t.Parallel()
	for _, c := range crashes {
		for _, trial := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/trial=%v", c.name, trial), func(t *testing.T) {
				t.Parallel()
				address := lowAddress(t)
				healthy := "0"
				if trial {
					healthy = "1h"
				}
				s := &steps{kept: lowKeeper(t, address, "127.0.0.1:0", "engine: {loops: 2}\n", c.sandbox, "healthy-after: "+healthy)}
				s.held = s.kept.file
				text, err := os.ReadFile(s.kept.file)
				if err != nil {
					t.Fatal(err)
				}
				s.file = []byte(strings.Replace(string(text), "loops: 2", "loops: 3", 1))
				s.upgradable()
				if trial {
					s.signal(syscall.SIGUSR2)
					s.state("proving")
					testwait.Until(t, "there is one worker", func() bool { return s.worker() != 0 && s.answers() })
				}
				s.growing(address, 3, func() bool {
					s.old = s.worker()
					s.restoreFile()
					if !trial { // it lets the next worker begin, and learns of this one's death then or a moment later
						s.signal(syscall.SIGSTOP)
					}
					if _, err := s.admin.Reload(s.ctx()); err != nil {
						t.Error(err)
					}
					s.to(s.old, syscall.SIGKILL)
					s.signal(syscall.SIGCONT)
					return trial
				})
			})
		}
	}
}
