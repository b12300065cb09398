package sandbox

import (
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/penstock/penstock/internal/testattack"
	"github.com/penstock/penstock/internal/testnet"
)

// nobody is a user without any rights.
var nobody = &User{UID: 65534, GID: 65534}

// policy is what the work of a child needs.
func (r *rig) policy() Policy {
	return Policy{Read: []string{r.work.Read, "/proc", "/etc/resolv.conf", "/etc/hosts"}, Write: []string{r.work.Write},
		Connect: []uint16{uint16(r.work.Port), uint16(r.work.Bind)}, Bind: []uint16{uint16(r.work.Bind)}}
}

// needs skips a test on a kernel that cannot hold everything. It asks the child, because this program may be linked with cgo, which is then the
// reason for what an older kernel cannot hold either.
func needs(t *testing.T, layers ...Layer) {
	a := (&rig{TB: t}).run(order{})
	for _, l := range layers {
		if s := a.Report.Layers[l]; !s.Held {
			t.Skipf("%v: %s", l, s.Why)
		}
	}
}

// starts are how a process can have been started.
var starts = []struct {
	name   string
	root   bool // needs root
	user   *User
	how    func(*exec.Cmd)
	layers []Layer // that hold besides
}{
	{"root that becomes another user", true, nobody, func(*exec.Cmd) {}, []Layer{Credentials}},
	{"root that stays root", true, nil, func(*exec.Cmd) {}, nil},
	{"another user", true, nil, func(c *exec.Cmd) { testattack.AsUser(c, 65534, 65534) }, nil},
	{"this user", false, nil, func(*exec.Cmd) {}, nil},
	{"root of a namespace of users", false, nil, testattack.InNamespace, nil},
}

// Whatever a process in a sandbox tries, it is refused, in each of its threads; and what the policy has still works.
func TestAttacks(t *testing.T) {
	needs(t, Files, Network, Scope, Calls)
	for _, start := range starts {
		t.Run(start.name, func(t *testing.T) {
			if start.root && !privileged(6, 7, 8) { // CAP_SETGID, SETUID, SETPCAP
				t.Skip("needs root that may change its user")
			}
			r := newRig(t)
			if start.name == "root of a namespace of users" && !r.can(start.how) {
				t.Skip("this user may not make a namespace of users")
			}
			r.work.Bind = r.port()
			p := r.policy()
			p.User = start.user
			a := r.run(order{Policy: p, Target: r.target, Enter: true, Attack: true, Work: &r.work}, start.how)
			if a.Err != "" || len(a.Failed) > 0 {
				t.Errorf("error %q, what does not work: %q", a.Err, a.Failed)
			}
			for _, l := range append([]Layer{NoNewPrivs, Capabilities, Files, Network, Scope, Calls}, start.layers...) {
				if s := a.Report.Layers[l]; !s.Held {
					t.Errorf("%v does not hold: %s", l, s.Why)
				}
			}
			r.checkThreads(a, start.user)
			if len(a.Results) != 3 {
				t.Errorf("attacks from %d threads", len(a.Results))
			}
			for thread, results := range a.Results {
				for _, x := range results {
					if !x.Refused {
						t.Errorf("%s: %s: %s (%d)", thread, x.Name, x.Text, x.Errno)
					}
				}
			}
		})
	}
}

// With Unix sockets allowed, those of the policy's folders can be bound, and abstract ones of other processes cannot be reached.
func TestUnixSockets(t *testing.T) {
	needs(t, Files, Scope, Calls)
	r := newRig(t)
	p := r.policy()
	p.Unix, r.work.Unix = true, true
	a := r.run(order{Policy: p, Target: r.target, Enter: true, Attack: true, Work: &r.work})
	if len(a.Failed) > 0 {
		t.Errorf("what does not work: %q", a.Failed)
	}
	for thread, results := range a.Results {
		for _, x := range results {
			if !x.Refused && x.Name != "a Unix socket" && x.Name != "bind a port" { // port 0 is in the policy
				t.Errorf("%s: %s: %s (%d)", thread, x.Name, x.Text, x.Errno)
			}
		}
	}
}

// can reports whether a child can be started like this.
func (r *rig) can(how func(*exec.Cmd)) bool {
	cmd := exec.Command(child(r), "{}")
	how(cmd)
	return cmd.Run() == nil
}

// port reserves a port, and returns its number.
func (r *rig) port() int {
	r.Helper()
	n, err := strconv.Atoi(testnet.Port(r))
	if err != nil {
		r.Fatal(err)
	}
	return n
}

// checkThreads checks what the kernel says of each thread.
func (r *rig) checkThreads(a answer, user *User) {
	r.Helper()
	if len(a.Threads) < 5 {
		r.Errorf("only %d threads", len(a.Threads))
	}
	const none = "0000000000000000"
	want := map[string]string{"NoNewPrivs": "1", "Seccomp": "2", "CapInh": none, "CapPrm": none, "CapEff": none, "CapAmb": none}
	if user != nil {
		want["CapBnd"], want["Uid"], want["Gid"], want["Groups"] = none, "65534\t65534\t65534\t65534", "65534\t65534\t65534\t65534", ""
	}
	for _, thread := range a.Threads {
		for name, value := range want {
			if got := thread[name]; got != value {
				r.Errorf("thread %s: %s is %q, want %q", thread["Pid"], name, got, value)
			}
		}
	}
}

// Without a sandbox, the same attempts succeed, or fail for another reason: they would find out a sandbox that does not hold.
func TestAttacksOutside(t *testing.T) {
	// CAP_DAC_READ_SEARCH, NET_ADMIN, NET_RAW, SYS_MODULE, SYS_CHROOT, SYS_PTRACE, SYS_PACCT, SYS_ADMIN, SYS_BOOT, SYS_TIME
	if !privileged(2, 12, 13, 16, 18, 19, 20, 21, 22, 25) {
		t.Skip("needs root with all its capabilities, and no filter of system calls")
	}
	r := newRig(t)
	a := r.run(order{Target: r.target, Attack: true})
	// Some kernels are built without these calls, and some machines forbid them.
	natural := []string{"open a setting of the kernel to write", "a socket of virtual machines", "an XDP socket", "a Bluetooth socket", "netlink of audit", "pidfd_open", "a call that is not known",
		"connect over IPv6", "read by the number of x32", "getpid by the number of x32"}
	var held []string
	for _, x := range a.Results["the thread that entered"] {
		if x.Refused && !slices.Contains(natural, x.Name) {
			held = append(held, x.Name+": "+x.Text)
		}
	}
	if len(held) > 0 {
		t.Errorf("refused without a sandbox:\n%s", strings.Join(held, "\n"))
	}
}

// privileged reports whether this process is root, with these capabilities, and nothing filters its system calls.
func privileged(capabilities ...int) bool {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil || os.Geteuid() != 0 {
		return false
	}
	var effective uint64
	for line := range strings.Lines(string(b)) {
		switch name, value, _ := strings.Cut(strings.TrimSpace(line), ":\t"); name {
		case "CapEff":
			effective, _ = strconv.ParseUint(value, 16, 64)
		case "Seccomp":
			if value != "0" {
				return false
			}
		}
	}
	return !slices.ContainsFunc(capabilities, func(c int) bool { return effective>>c&1 == 0 })
}
