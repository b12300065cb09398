//go:build linux

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// relays are the daemons and the simulated ones.
type relays struct {
	s      *settings
	dir    string
	server server
	host   string // an address of 127.0.0.0/8 that nobody else has, as no outgoing connection has either

	children []child
	addrs    map[string]string // of the daemons' listeners
	reading  sync.WaitGroup

	mu      sync.Mutex
	number  int                   // of the version that is being published
	have    map[string]event      // the last version of each
	contact map[string]event      // since forgetContact
	states  map[memberState]event // since forgetStates
	ended   []string              // children that ended, and must not
	closing bool
}

type child struct {
	name  string
	cmd   *exec.Cmd
	stdin io.Closer
}

// got is when a relay did something.
type got struct{ at time.Time }

func newFleet(s *settings, dir string, r server) *relays {
	return &relays{s: s, dir: dir, server: r, host: fmt.Sprintf("127.%d.%d.%d", 1+rand.N(250), rand.N(250), 1+rand.N(250)), addrs: map[string]string{}, have: map[string]event{}, contact: map[string]event{}, states: map[memberState]event{}}
}

func (f *relays) size() int { return f.s.daemons + f.s.nodes }

func (f *relays) isDaemon(node string) bool { return strings.HasPrefix(node, "daemon-") }

// version says which version is published next.
func (f *relays) version(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.number = n
}

// start starts all relays.
func (f *relays) start() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	for first := 0; first < f.s.nodes; first += f.s.perProcess {
		p, err := json.Marshal(plan{Source: f.server.source(), First: first, Size: min(f.s.perProcess, f.s.nodes-first), Stagger: 5 * time.Millisecond})
		if err != nil {
			return err
		}
		cmd := exec.Command(self, "nodes", string(p))
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			return err
		}
		if err := f.run(fmt.Sprintf("nodes from %d", first), cmd, out, f.readEvents); err != nil {
			return err
		}
	}
	for i := range f.s.daemons {
		name := fmt.Sprintf("daemon-%05d", i)
		addr := fmt.Sprintf("%s:%d", f.host, 10000+i)
		f.addrs[name] = addr
		file := filepath.Join(f.dir, name+".yaml")
		to := "\"echo:\""
		if f.s.members > 0 {
			to = "g"
		}
		own := fmt.Sprintf("engine: {loops: 1}\nlisteners: {own: {listen: \"tcp://%s\", to: %s}}\n", addr, to)
		if err := os.WriteFile(file, []byte(own), 0o600); err != nil {
			return err
		}
		cmd := exec.Command(f.s.binary, "run", "-c", file, "-c", f.server.source(), "--node", name)
		out, err := cmd.StderrPipe()
		if err != nil {
			return err
		}
		if err := f.run(name, cmd, out, func(in io.Reader) { f.readLog(name, in) }); err != nil {
			return err
		}
		time.Sleep(f.s.stagger)
	}
	return nil
}

// run starts a child. It ends with its standard input, or is killed.
func (f *relays) run(name string, cmd *exec.Cmd, out io.Reader, read func(io.Reader)) error {
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	f.children = append(f.children, child{name, cmd, stdin})
	f.reading.Go(func() {
		read(out)
		cmd.Wait()
		f.mu.Lock()
		defer f.mu.Unlock()
		if !f.closing {
			f.ended = append(f.ended, fmt.Sprintf("%s: %v", name, cmd.ProcessState))
		}
	})
	return nil
}

// readEvents reads what a child says of its simulated relays.
func (f *relays) readEvents(in io.Reader) {
	for d := json.NewDecoder(in); ; {
		var e event
		if err := d.Decode(&e); err != nil {
			return
		}
		f.add(e)
	}
}

// readLog reads the log of a daemon. It runs the version that is published when it says that it was reloaded.
func (f *relays) readLog(name string, in io.Reader) {
	for lines := bufio.NewScanner(in); lines.Scan(); {
		var line struct {
			Time       time.Time
			Msg        string
			Name       string
			Member, To string
		}
		if json.Unmarshal(lines.Bytes(), &line) != nil {
			continue
		}
		e := event{Node: name, At: line.Time.UnixNano()}
		switch {
		case line.Msg == "member":
			f.noteState(name, line.Member, line.To, line.Time)
			continue
		case line.Msg == "ready" && line.Name == "own", line.Msg == "reloaded":
			f.mu.Lock()
			e.Version = f.number
			f.mu.Unlock()
		case line.Msg == "the registry answers again":
			e.Contact = true
		default:
			continue
		}
		f.add(e)
	}
}

func (f *relays) add(e event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if e.Contact {
		if _, ok := f.contact[e.Node]; !ok {
			f.contact[e.Node] = e
		}
		return
	}
	f.have[e.Node] = e
}

// await waits until all relays run a version, and returns since when each does.
func (f *relays) await(n int) (map[string]got, error) {
	return f.all(fmt.Sprintf("version %d", n), func() map[string]event {
		some := map[string]event{}
		for node, e := range f.have {
			if e.Version == n {
				some[node] = e
			}
		}
		return some
	})
}

// awaitContact waits until all relays have had contact with the server again.
func (f *relays) awaitContact() (map[string]got, error) {
	return f.all("contact", func() map[string]event { return f.contact })
}

func (f *relays) forgetContact() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.contact = map[string]event{}
}

// all waits until some has an event of each relay.
func (f *relays) all(what string, some func() map[string]event) (map[string]got, error) {
	for end := time.Now().Add(f.s.patience); ; time.Sleep(20 * time.Millisecond) {
		f.mu.Lock()
		list, ended := some(), slices.Clone(f.ended)
		if len(list) == f.size() {
			out := map[string]got{}
			for node, e := range list {
				out[node] = got{time.Unix(0, e.At)}
			}
			f.mu.Unlock()
			return out, nil
		}
		have := len(list)
		f.mu.Unlock()
		if len(ended) > 0 {
			return nil, fmt.Errorf("%d relays have ended: %s", len(ended), ended[0])
		}
		if time.Now().After(end) {
			return nil, fmt.Errorf("%d of %d relays have %s after %v", have, f.size(), what, f.s.patience)
		}
	}
}

// unreachable returns the daemons that do not relay, each with an error.
func (f *relays) unreachable() (lost []string) {
	for name, addr := range f.addrs {
		if err := f.echo(addr); err != nil {
			lost = append(lost, fmt.Sprintf("%s: %v", name, err))
		}
	}
	slices.Sort(lost)
	return lost
}

// echo sends something to a listener, which must come back.
func (f *relays) echo(addr string) error {
	c, err := net.DialTimeout("tcp", addr, f.s.patience)
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(f.s.patience))
	if _, err := io.WriteString(c, "echo"); err != nil {
		return err
	}
	var b [4]byte
	if _, err := io.ReadFull(c, b[:]); err != nil {
		return err
	}
	if string(b[:]) != "echo" {
		return fmt.Errorf("%q came back", b[:])
	}
	return nil
}

// check returns an error unless all relays are there.
func (f *relays) check() error {
	if lost := f.unreachable(); len(lost) > 0 {
		return fmt.Errorf("%d daemons do not relay: %v", len(lost), lost)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.ended) > 0 {
		return fmt.Errorf("%d relays have ended: %s", len(f.ended), f.ended[0])
	}
	return nil
}

func (f *relays) close() {
	f.mu.Lock()
	f.closing = true
	f.mu.Unlock()
	for _, c := range f.children {
		c.stdin.Close()
		c.cmd.Process.Kill()
	}
	f.reading.Wait()
}
