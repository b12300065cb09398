//go:build linux

// Scale measures how far one registry carries a fleet: hundreds of daemons and a thousand simulated relays follow a
// configuration of one etcd, or of one xDS control plane, on one machine.
//
//	go run ./cmd/penstock/scale -daemons 300 -nodes 1000 -publishes 30 -out result.txt
//	go run ./cmd/penstock/scale -server ads
//	go run ./cmd/penstock/scale -daemons 100 -nodes 0 -members 20 -shared 3     # health checks that daemons share
//
// A simulated relay has no engine: it is the code with which a daemon follows its configuration and reports, in one of
// a few child processes. Everything is measured from outside: when a relay runs a configuration, from the log of the
// daemons and from what the simulated relays were given; traffic, from the kernel's counts of the server's sockets; CPU
// time, from the kernel's accounts of the server's process; requests, from the server's own metrics.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// settings are the flags.
type settings struct {
	binary     string
	server     string
	daemons    int
	nodes      int
	perProcess int
	publishes  int
	gap        time.Duration
	rest       time.Duration
	away       time.Duration
	stagger    time.Duration
	patience   time.Duration
	padding    int
	file       string
	storms     int
	members    int // that daemons check; 0: none
	shared     int // how many check each
	every      time.Duration
}

func main() {
	if len(os.Args) == 3 && os.Args[1] == "nodes" {
		if err := simulate(os.Args[2], os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "scale nodes:", err)
			os.Exit(1)
		}
		return
	}
	var s settings
	flag.StringVar(&s.binary, "penstock", "", "the daemon; default: it is built")
	flag.StringVar(&s.server, "server", "etcd", "what has the configuration: etcd or ads")
	flag.IntVar(&s.daemons, "daemons", 300, "daemons, each a process with a listener of its own")
	flag.IntVar(&s.nodes, "nodes", 1000, "simulated relays")
	flag.IntVar(&s.perProcess, "per-process", 250, "simulated relays of one child process")
	flag.IntVar(&s.publishes, "publishes", 30, "versions to publish")
	flag.DurationVar(&s.gap, "gap", 2*time.Second, "time from when all relays have a version to the next one")
	flag.DurationVar(&s.rest, "rest", time.Minute, "how long to measure while nothing happens")
	flag.DurationVar(&s.away, "away", 2*time.Second, "how long the server is away")
	flag.IntVar(&s.storms, "storms", 3, "how often the server is killed and started again")
	flag.DurationVar(&s.stagger, "stagger", 50*time.Millisecond, "time between the starts of two daemons")
	flag.DurationVar(&s.patience, "patience", 2*time.Minute, "how long anything may take")
	flag.IntVar(&s.padding, "size", 8192, "`bytes` of the configuration that is published")
	flag.IntVar(&s.members, "members", 0, "instead of publishing, measure health checks of so many members; with -nodes 0")
	flag.IntVar(&s.shared, "shared", 3, "with -members, how many daemons check a member; 0: all")
	flag.DurationVar(&s.every, "every", time.Second, "with -members, time between two checks")
	flag.StringVar(&s.file, "out", "", "also write everything to this `FILE`")
	flag.Parse()
	out := io.Writer(os.Stdout)
	if s.file != "" {
		f, err := os.Create(s.file)
		if err != nil {
			fmt.Fprintln(os.Stderr, "scale:", err)
			os.Exit(1)
		}
		defer f.Close()
		out = io.MultiWriter(out, f)
	}
	if err := s.run(out); err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
		os.Exit(1)
	}
}

// text returns the n-th version of the configuration. Its drain is the number.
func (s *settings) text(n int, members ...*target) string {
	head := fmt.Sprintf("drain: %ds\nlog: {format: json, flows: none}\ngroups:\n  g: %s\n", n, s.group(members))
	const line = "# a configuration as long as that of a relay with some dozens of listeners\n"
	return head + strings.Repeat(line, max(0, s.padding-len(head))/len(line))
}

// run makes all measurements.
func (s *settings) run(out io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "penstock-scale-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if s.binary == "" {
		s.binary = filepath.Join(dir, "penstock")
		if text, err := exec.Command("go", "build", "-buildvcs=false", "-o", s.binary, "github.com/penstock/penstock/cmd/penstock").CombinedOutput(); err != nil {
			return fmt.Errorf("build penstock: %w\n%s", err, text)
		}
	}
	describeMachine(out)
	fmt.Fprintf(out, "server: %s\ndaemons: %d\nnodes: %d\nconfiguration-bytes: %d\n\n", s.server, s.daemons, s.nodes, len(s.text(1)))
	r, err := newServer(s.server, dir)
	if err != nil {
		return err
	}
	defer r.close()
	f := newFleet(s, dir, r)
	defer f.close()
	c, err := newChecked(f.host, s.members)
	if err != nil {
		return err
	}
	defer c.close()
	if err := r.publish(s.text(1, c.list...)); err != nil {
		return err
	}
	begin := time.Now()
	f.version(1)
	if err := f.start(); err != nil {
		return err
	}
	if _, err := f.await(1); err != nil {
		return err
	}
	fmt.Fprintf(out, "# all %d relays run the configuration %v after the first one was started\n", f.size(), time.Since(begin).Round(time.Millisecond))
	time.Sleep(min(s.rest, 10*time.Second)) // until their starts are over
	if s.members > 0 {
		time.Sleep(min(s.rest, 30*time.Second)) // until they have found each other
		return errors.Join(s.checks(out, f, c), f.check())
	}
	rest, err := measure(r, s.rest)
	if err != nil {
		return err
	}
	rest.print(out, "at rest", f.size(), s.rest)
	if err := s.publishAll(out, f, r, rest); err != nil {
		return err
	}
	for range s.storms {
		if err := s.storm(out, f, r); err != nil {
			return err
		}
	}
	return f.check()
}

// publishAll publishes versions, one after the other.
func (s *settings) publishAll(out io.Writer, f *relays, r server, rest reading) error {
	var daemons, nodes times
	before, err := read(r)
	if err != nil {
		return err
	}
	begin := time.Now()
	for n := 2; n < 2+s.publishes; n++ {
		f.version(n)
		at := time.Now()
		if err := r.publish(s.text(n)); err != nil {
			return err
		}
		all, err := f.await(n)
		if err != nil {
			return err
		}
		var some times
		for node, e := range all {
			some = append(some, e.at.Sub(at))
			if f.isDaemon(node) {
				daemons = append(daemons, e.at.Sub(at))
			} else {
				nodes = append(nodes, e.at.Sub(at))
			}
		}
		fmt.Fprintf(out, "BenchmarkPublish/server=%s/daemons=%d/nodes=%d\t1\t%s\n", s.server, s.daemons, s.nodes, some.figures())
		time.Sleep(s.gap)
	}
	took := time.Since(begin)
	after, err := read(r)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "# from publish until a relay runs it, %d versions: %s\n#   daemons: %s\n#   simulated: %s\n", s.publishes, append(append(times{}, daemons...), nodes...), daemons, nodes)
	d := after.since(before)
	d.minus(rest, took.Seconds()/s.rest.Seconds())
	d.print(out, "more than at rest, for one publish", f.size(), time.Duration(s.publishes)*time.Second)
	return nil
}

// storm kills the server, starts it again, and measures how its relays come back.
func (s *settings) storm(out io.Writer, f *relays, r server) error {
	f.forgetContact()
	r.kill()
	time.Sleep(s.away)
	if lost := f.unreachable(); len(lost) > 0 {
		return fmt.Errorf("while the server was away, %d daemons did not relay: %v", len(lost), lost)
	}
	begin := time.Now()
	if err := r.start(); err != nil {
		return err
	}
	up := time.Now()
	peak := watchRequests(r)
	all, err := f.awaitContact()
	if err != nil {
		return err
	}
	time.Sleep(2 * time.Second)
	most, total, curve := peak()
	var since times
	for _, e := range all {
		since = append(since, max(0, e.at.Sub(up)))
	}
	fmt.Fprintf(out, "BenchmarkReconnect/server=%s/daemons=%d/nodes=%d\t1\t%s", s.server, s.daemons, s.nodes, since.figures())
	if total > 0 {
		fmt.Fprintf(out, "\t%.0f requests/s-peak\t%.0f requests", most, total)
	}
	fmt.Fprintf(out, "\n# the server was away for %v, and was ready %v after its start; then its relays were back after %s", s.away, up.Sub(begin).Round(time.Millisecond), since)
	if total > 0 {
		fmt.Fprintf(out, "; requests in each second: %s", curve)
	}
	fmt.Fprintln(out)
	n := f.number + 1
	f.version(n)
	at := time.Now()
	if err := r.publish(s.text(n)); err != nil {
		return err
	}
	got, err := f.await(n)
	if err != nil {
		return fmt.Errorf("after the server's return: %w", err)
	}
	var after times
	for _, e := range got {
		after = append(after, e.at.Sub(at))
	}
	fmt.Fprintf(out, "# a version that was published then was running after %s\n", after)
	return nil
}
