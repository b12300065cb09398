//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/penstock/penstock/bench/internal/proc"
	"github.com/penstock/penstock/bench/internal/trial"
)

// Where the guest has the packages, and what is used of them. The ports below 1024 are those of the packaged unit's only capability.
const (
	shared           = "/trial"
	older, newer     = "1.2.3", "1.2.4"
	configuration    = "/etc/penstock/penstock.yaml"
	stream           = "127.0.0.1:443"
	datagram         = "127.0.0.1:53"
	upstreamStream   = "127.0.0.1:9443"
	upstreamDatagram = "127.0.0.1:9053"
	patience         = 3 * time.Minute // a guest is slow
)

// configured is the configuration that cases use, without what they put into it.
const configured = `admin: {listen: "unix:///run/penstock/admin.sock"}
drain: 3s
listeners:
  streams: {listen: "tcp://` + stream + `", to: "tcp://` + upstreamStream + `"}
  datagrams: {listen: "udp://` + datagram + `", to: "udp://` + upstreamDatagram + `"}
`

// result is what was seen in a case.
type result struct {
	Case, What, Seen, Failed string
}

// guest is the machine in which the cases run, one after another: each finds what those before it have left.
type guest struct {
	flows *flows
}

// inside runs the cases that were asked for, in the guest, and says how each went. It then switches the guest off.
func inside(named string) error {
	if _, err := serve(upstreamStream, upstreamDatagram); err != nil {
		return err
	}
	out, err := os.Create(filepath.Join(shared, "results"))
	if err != nil {
		return err
	}
	defer out.Close()
	g := &guest{}
	say := func(r result) error { return json.NewEncoder(out).Encode(r) }
	if err := say(result{Case: "versions", What: "the guest", Seen: g.versions()}); err != nil {
		return err
	}
	for _, c := range cases {
		if !trial.Named(named, c.name) {
			continue
		}
		r := result{Case: c.name, What: c.what}
		if r.Seen, err = c.run(g); err != nil {
			r.Failed = err.Error()
			if log, err := g.run("journalctl", "-o", "cat", "-n", "40", "--no-pager"); err == nil {
				r.Failed += "\n" + log
			}
		}
		if err := say(r); err != nil {
			return err
		}
	}
	return nil
}

// versions says what is in the guest.
func (g *guest) versions() string {
	kernel, _ := g.run("uname", "-r")
	debian, _ := os.ReadFile("/etc/debian_version")
	seen := []string{"Linux " + kernel + " (user-mode-linux)", "Debian " + strings.TrimSpace(string(debian))}
	for _, name := range []string{"systemd", "rpm", "podman", "crun"} {
		version, _ := g.run("dpkg-query", "--show", "--showformat", "${Version}", name)
		seen = append(seen, name+" "+version)
	}
	return strings.Join(seen, ", ")
}

// run runs a program, and returns what it has written.
func (g *guest) run(argv ...string) (string, error) { return g.runWith(nil, argv...) }

// runWith runs a program with more in its environment.
func (g *guest) runWith(env []string, argv ...string) (string, error) {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(append(os.Environ(), "LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive"), env...)
	cmd.Dir = "/"
	out, err := cmd.CombinedOutput()
	text := strings.TrimSpace(string(out))
	if err != nil {
		return text, fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, text)
	}
	return text, nil
}

// runAll runs programs, each a line whose words have no spaces, until one fails.
func (g *guest) runAll(lines ...string) error {
	for _, line := range lines {
		if _, err := g.run(strings.Fields(line)...); err != nil {
			return err
		}
	}
	return nil
}

// code returns the exit status in an error of run.
func code(err error) int {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	return 0
}

// newFlows begins new flows, unless those that there are go on. They are old enough to be held by the keeper when it returns.
func (g *guest) newFlows() error {
	if g.flows != nil {
		if _, err := g.flows.goOn(); err == nil {
			return nil
		}
		g.noFlows()
	}
	f, err := begin(stream, datagram)
	if err != nil {
		return err
	}
	g.flows = f
	if !strings.Contains(g.configuration(), "keeper:") {
		return nil
	}
	return wait("the keeper holds all flows", func() bool {
		text, err := g.run("penstock", "status")
		return err == nil && strings.Contains(text, fmt.Sprintf("holds %d flows", 2*perKind))
	})
}

func (g *guest) noFlows() {
	if g.flows != nil {
		g.flows.end()
		g.flows = nil
	}
}

func (g *guest) configuration() string {
	text, _ := os.ReadFile(configuration)
	return string(text)
}

// configure writes the configuration, with further lines.
func (g *guest) configure(more ...string) error {
	return os.WriteFile(configuration, []byte(configured+strings.Join(more, "\n")+"\n"), 0o644)
}

// unit returns a property that systemd has of the service.
func (g *guest) unit(property string) string {
	text, _ := g.run("systemctl", "show", "-P", property, "penstock")
	return text
}

// keeper returns the process that systemd has started.
func (g *guest) keeper() int {
	pid, _ := strconv.Atoi(g.unit("MainPID"))
	return pid
}

// worker waits for a worker that is not one of those given.
func (g *guest) worker(but ...int) (pid int, err error) {
	return newWorker(g.keeper(), but...)
}

// newWorker waits until a keeper has a worker that is not one of those given.
func newWorker(keeper int, but ...int) (pid int, err error) {
	err = wait("a worker", func() bool {
		for _, p := range proc.Tree(keeper)[1:] {
			if pid = p; !slices.Contains(but, p) {
				return true
			}
		}
		return false
	})
	return pid, err
}

// wait waits until a condition holds that programs tell, which take the guest long.
func wait(what string, holds func() bool) error {
	return proc.Until(what, patience, 500*time.Millisecond, func() error {
		if !holds() {
			return os.ErrDeadlineExceeded
		}
		return nil
	})
}

// statusField returns a field of a process's status.
func statusField(pid int, name string) string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(text)) {
		if value, is := strings.CutPrefix(line, name+":"); is {
			return strings.Join(strings.Fields(value), " ")
		}
	}
	return ""
}

// outOfMemory has the kernel kill a worker for lack of memory of its control group, which has a limit: a program in it, which the kernel may not
// kill, takes memory until that has happened. Processes whose score is higher, such as those of health checks, are killed first.
func (g *guest) outOfMemory(group string, worker int) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	hog := exec.Command(self, "hog", group, strconv.Itoa(worker))
	if out, err := hog.CombinedOutput(); err != nil {
		return fmt.Errorf("hog: %w: %s", err, out)
	}
	return nil
}

// hog is the program that takes memory.
func hog(group string, worker int) error {
	if err := os.WriteFile("/proc/self/oom_score_adj", []byte("-1000"), 0o644); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0o644); err != nil {
		return err
	}
	for range 4096 {
		b, err := syscall.Mmap(-1, 0, 1<<20, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
		if err != nil {
			return err
		}
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
			if i%(1<<18) == 0 && !proc.Alive(worker) {
				return nil
			}
		}
	}
	return errors.New("the worker was not killed")
}
