//go:build linux

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/penstock/penstock/bench/internal/trial"
)

// job is one thing that runs under each kernel: the tests of a package, unless it has a command of its own.
type job struct {
	name    string
	what    string
	tests   string   // the folder of a package, from the root of the repository
	command []string // {work} is the folder of what was built
	trial   string   // the folder in bench/trials of the program that the command runs; empty: none
}

// jobs are those that ask the kernel for something. The tests of cmd/penstock itself are not here: they build the daemon, which takes an emulated
// processor too long.
var jobs = []job{
	{name: "doctor", what: "what the daemon says of the kernel's features", command: []string{"{work}/penstock", "doctor"}},
	testsOf("internal/sys", "system calls"),
	testsOf("internal/simkernel", "the simulated kernel, held against the real one call by call"),
	testsOf("internal/pump", "a direction of a stream"),
	testsOf("internal/loop", "event loops"),
	testsOf("internal/ledger", "state in shared memory"),
	testsOf("internal/feature", "probes of features"),
	testsOf("internal/tlsconn", "TLS"),
	testsOf("splice", "splice(2)"),
	testsOf("dgram", "datagrams"),
	testsOf("pool", "buffers"),
	testsOf("keeper", "the process that keeps sockets"),
	testsOf("sandbox", "the sandbox, and attacks from inside it"),
	testsOf("relay", "the engine"),
	testsOf("cmd/penstock/internal/budget", "limits of memory, of control groups too"),
	testsOf("cmd/penstock/internal/packets", "packet captures"),
	testsOf("cmd/penstock/internal/sandboxneeds", "what the daemon needs in its sandbox"),
	{name: "kills", what: "20 kills of a worker under load, no byte wrong and no flow lost", command: []string{"{work}/chaos", "-binary", "{work}/penstock", "-kills", "20",
		"-every", "10s", "-clients", "1s", "-rate", "2", "-keep-after", "2s", "-slack", "30s", "-watchdog", "30s", "-start-timeout", "2m", "-patience", "2m"}, trial: "chaos"},
	{name: "tls", what: "10 kills and 5 upgrades of a worker, a reload, another number of loops, a drain and 4 attacks on records, under TLS that the kernel has, no byte wrong and no flow lost",
		command: tlskernel("-kills", "10", "-upgrades", "5", "-reloads", "1", "-layouts", "1", "-drains", "1", "-searches", "0", "-attacks", "4"), trial: "tlskernel"},
	{name: "tls-user", what: "the same with a worker that is another user and listens on port 443, 3 kills, an upgrade and a reload, and a search of all memory for keys",
		command: tlskernel("-kills", "3", "-upgrades", "1", "-reloads", "1", "-layouts", "0", "-drains", "0", "-searches", "0", "-attacks", "0", "-user", "nobody"), trial: "tlskernel"},
	{name: "networks", what: "flows over bad networks, with kills and upgrades: none ends, and nothing is lost that the network has not lost", command: []string{"{work}/outlive",
		"networks", "-penstock", "{work}/penstock", "-relays", "penstock"}, trial: "outlive"},
	{name: "networks-peers", what: "the same with HAProxy and nginx, if they are installed", command: []string{"{work}/outlive", "networks", "-penstock", "{work}/penstock",
		"-relays", "haproxy,nginx"}, trial: "outlive"},
}

func tlskernel(events ...string) []string {
	return append([]string{"{work}/tlskernel", "-penstock", "{work}/penstock", "-clients", "upstream,go*,both*,openssl*,rustls*", "-flows", "1", "-patience", "4m"}, events...)
}

func testsOf(folder, what string) job { return job{name: folder, what: what, tests: folder} }

// file is the path of what came of a job, without its ending.
func (j job) file(results string) string {
	return filepath.Join(results, strings.ReplaceAll(j.name, "/", "_"))
}

// binary is the path of a job's test binary.
func (s *setup) binary(j job) string {
	return filepath.Join(s.work, strings.ReplaceAll(j.tests, "/", "_")+".test")
}

// build builds the daemon, the trials that kill it, and the test binaries.
func (s *setup) build(chosen []job) error {
	if err := os.MkdirAll(s.work, 0o755); err != nil {
		return err
	}
	if err := trial.Build(filepath.Join(s.work, "penstock")); err != nil {
		return err
	}
	for _, j := range chosen {
		args := []string{"build", "-buildvcs=false", "-o", filepath.Join(s.work, j.trial), "./bench/trials/" + j.trial}
		switch {
		case j.tests != "":
			args = []string{"test", "-c", "-buildvcs=false", "-tags", "penstock_invariants", "-o", s.binary(j), "./" + j.tests}
		case j.trial == "":
			continue
		}
		fmt.Fprintf(os.Stderr, "building for %s\n", j.name)
		if text, err := exec.Command("go", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, text)
		}
	}
	return nil
}

// script is what a guest runs, in the root of the repository: each job, whose output and exit code become files in the folder of results.
func (s *setup) script(chosen []job, results string) string {
	var b strings.Builder
	// The root of a guest is 9p, where Unix sockets cannot be bound.
	fmt.Fprintf(&b, "set -u\nexport PATH=%q HOME=/root TMPDIR=/dev/shm/kernels GOMAXPROCS=%d\n", os.Getenv("PATH"), s.cpus)
	b.WriteString("mkdir -p $TMPDIR; ip link set lo up; ulimit -Hn 1048576; ulimit -n 20000; modprobe -a tls veth sch_netem sch_prio cls_u32 2>/dev/null\n")
	b.WriteString("[ -d /sys/fs/cgroup ] && ! mountpoint -q /sys/fs/cgroup && mount -t cgroup2 none /sys/fs/cgroup\n")
	fmt.Fprintf(&b, "uname -r > %s/release\n", results)
	for _, j := range chosen {
		folder, command := s.root, strings.ReplaceAll(strings.Join(j.command, " "), "{work}", s.work)
		if j.tests != "" {
			folder = filepath.Join(s.root, j.tests)
			command = fmt.Sprintf("%s -test.v -test.short -test.timeout %v -test.parallel 2", s.binary(j), s.limit)
		}
		to := j.file(results)
		fmt.Fprintf(&b, "(cd %s && exec timeout %d %s) >%s.out 2>&1 </dev/null; echo $? >%s.code\n", folder, int(s.limit.Seconds())+60, command, to, to)
	}
	b.WriteString("sync; exit 0\n")
	return b.String()
}
