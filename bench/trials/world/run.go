//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/penstock/penstock/bench/internal/admin"
	"github.com/penstock/penstock/bench/internal/certs"
	"github.com/penstock/penstock/bench/internal/proc"
	"github.com/penstock/penstock/bench/internal/world"
)

const (
	keepAfter = 200 * time.Millisecond
	slack     = 5 * time.Second // how much older a flow must be to count as settled
	rate      = 8 << 20         // bytes per second of the load
)

// places are where a run's files, listeners and members are.
type places struct {
	dir    string // the daemon's
	host   string // a loopback address that only this run uses
	wide   int    // a port of all addresses that only this run uses
	starts int    // of the service
	pair   certs.Pair
}

// own returns the path of a file that each start of the service has another one of, because two may be there at once.
func (p *places) own(name, end string) string {
	if p.starts > 0 {
		name += fmt.Sprint(p.starts)
	}
	return filepath.Join(p.dir, name+end)
}

func (p *places) admin() string { return p.own("admin", "") }

func (p *places) addr(l *listener) string {
	if l.Network == "unix" {
		return filepath.Join(p.dir, l.Name)
	}
	return fmt.Sprintf("%s:%d", p.host, l.Port)
}

func (p *places) member(n int) string { return fmt.Sprintf("%s:%d", p.host, 21000+n) }

func (p *places) url(g *group, n int) string { return g.Network + "://" + p.member(n) }

// A member is the model's, of one group.
type member struct {
	at      *world.Endpoint
	added   bool // by the API
	drained bool
}

// A run is one script that is played.
type run struct {
	places
	config   *config
	members  map[string]map[int]*member // by group and number
	w        *world.World
	d        *world.Daemon
	binary   [2]world.Program // the one that begins, and the one that it is upgraded to, in turn
	upgrades int              // so far
	probes   *probes
}

// play runs a script in a folder, and reports whether all that must be true was true.
// later is the binary that it is upgraded to, and back; empty: a copy of the first one.
func play(s *script, binary, later, dir string, out io.Writer) (good bool, err error) {
	if s.Config.Fleet != nil {
		return playFleet(s, binary, dir, out)
	}
	own, sockets := filepath.Join(dir, "run"), filepath.Join(dir, "clients")
	other := filepath.Join(dir, "penstock-other")
	if later == "" {
		later = binary
	}
	text, err := os.ReadFile(later)
	if err = errors.Join(err, os.Mkdir(own, 0o755), os.Mkdir(sockets, 0o755), os.WriteFile(other, text, 0o755), os.Chmod(dir, 0o755)); err != nil {
		return false, err
	}
	if s.Config.User != "" {
		if err := os.Chown(own, 65534, 65534); err != nil {
			return false, err
		}
	}
	r := &run{places: places{dir: own, host: ownHost(), wide: 24000 + rand.IntN(8000)}, config: s.Config.clone(), members: map[string]map[int]*member{}, w: world.New(s.Seed, out, sockets)}
	r.binary = [2]world.Program{{Name: "first", Path: binary}, {Name: "other", Path: other}}
	r.w.KeepAfter, r.w.Slack, r.w.Idle, r.w.Rate = keepAfter, slack, world.Idle, rate
	defer r.w.CloseUpstreams()
	authority, err := certs.New(dir)
	if err == nil {
		r.pair, err = authority.Server("world", "ecdsa", certs.Name)
	}
	if err == nil {
		err = readable(r.pair)
	}
	if err != nil {
		return false, err
	}
	if r.probes, err = r.startProbes(s.Without); err != nil {
		return false, err
	}
	defer r.probes.close()
	if r.config.Ends != nil {
		return r.playEnds(s, binary, out)
	}
	for _, g := range r.config.Groups {
		if err := r.listen(g); err != nil {
			return false, err
		}
	}
	for _, l := range r.config.Listeners {
		r.w.Places = append(r.w.Places, &world.Place{Name: l.Name, Network: l.Network, Addr: r.addr(l), Upstream: r.config.group(l.Group).Network, Own: l.Network == "udp"})
	}
	err = onCPUs(s.Config.CPUs, func() (err error) {
		r.d, err = world.Start(binary, own, r.config.text(&r.places), true)
		return err
	})
	if err != nil {
		return false, err
	}
	var watcher *world.Watcher
	defer func() { r.d.Kill() }() // another one may be there then
	if len(s.Config.Probed) == 0 {
		watcher = world.Watch(r.w, r.d, true)
		r.w.Load(1, nil)
		r.w.LoadDatagrams(1)
		r.w.NewClients(20 * time.Millisecond)
		r.w.Sleep(2 * time.Second)
	}
	r.check("the start")
	for i, e := range s.Events {
		if !r.w.Tally.Good() {
			break
		}
		if !e.Close {
			r.w.Sleep(e.Rest)
		}
		what := fmt.Sprintf("event %d, %v", i+1, e)
		if err := r.happen(&e); err != nil {
			r.fault("%s: %v", what, err)
		}
		if i+1 == len(s.Events) || !s.Events[i+1].Close {
			r.check(what)
		}
	}
	if err := r.w.Finish(); err != nil {
		r.fault("%v", err)
	}
	if watcher != nil {
		if err := watcher.Balance(); err != nil {
			r.fault("metrics: %v", err)
		}
	}
	if code, err := r.d.Terminate(); err != nil || code != 0 && code != world.DrainedLate {
		r.fault("the daemon ended with code %d: %v", code, err)
	}
	if err := r.w.CheckRecords(own); err != nil {
		return false, err
	}
	if good = r.w.Tally.Good(); !good {
		r.w.Tally.Print()
		fmt.Fprintf(out, "last lines of the log:\n%s\n", r.d.LogTail(15))
	}
	return good, nil
}

// ownHost returns a loopback address. It is not of the seed: others may be at work.
func ownHost() string {
	return fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(250), rand.IntN(250), 1+rand.IntN(250))
}

func (r *run) fault(format string, args ...any) {
	r.w.Tally.Fault(world.OtherFaults, format, args...)
}

// listen starts all upstreams that a group can have. Those that the model's configuration names are its members.
func (r *run) listen(g *group) error {
	all := map[int]*member{}
	for n := firstMember; n < mostMembers; n++ {
		m := &member{at: &world.Endpoint{Service: g.Name, Addr: r.member(n)}}
		m.at.Left.Store(1) // nobody may come before it is a member
		if g.Network == "udp" {
			c, err := net.ListenPacket("udp", m.at.Addr)
			if err != nil {
				return err
			}
			c.(*net.UDPConn).SetReadBuffer(4 << 20)
			r.w.ServeDatagrams(c, m.at)
		} else {
			l, err := net.Listen("tcp", m.at.Addr)
			if err != nil {
				return err
			}
			r.w.Serve(l, 0, m.at)
		}
		if slices.Contains(g.Members, n) {
			m.at.Left.Store(0)
			all[n] = m
		} else {
			m.at.Left.Store(1)
			all[-n] = m // it waits
		}
	}
	r.members[g.Name] = all
	return nil
}

// join makes a member one of a group in the model; the daemon is told after that.
func (r *run) join(g string, n int, added bool) {
	m := r.members[g][-n]
	delete(r.members[g], -n)
	m.added, m.drained = added, false
	m.at.Left.Store(0)
	r.members[g][n] = m
}

// happen makes an event happen to the daemon and to the model. Its error is what the daemon should not have done.
func (r *run) happen(e *event) error {
	var of map[int]*member
	var m *member
	path := "/v1/groups/" + e.Group + "/members"
	if e.Group != "" {
		of = r.members[e.Group]
		m = of[e.Member]
	}
	one := fmt.Sprintf("%s/m%d", path, e.Member)
	switch e.Do {
	case "kill":
		signals := map[string]syscall.Signal{"killed": syscall.SIGKILL, "segmentation fault": syscall.SIGSEGV, "aborted": syscall.SIGABRT}
		if !e.Close {
			r.w.Sleep(1200 * time.Millisecond) // so that it has all that it saves from time to time
		}
		kill := r.d.KillWorker
		if e.Oldest {
			kill = r.d.KillServing
		}
		if err := kill(r.w, signals[e.Value]); err != nil {
			return err
		}
		return r.d.Ready(world.Patience)
	case "upgrade":
		r.upgrades++
		return r.d.Upgrade(r.w, r.binary[r.upgrades%2])
	case "cpus":
		return r.cpus(e.Value)
	case "restart":
		return r.restart()
	case "add":
		if m != nil {
			return nil
		}
		r.join(e.Group, e.Member, true)
		return r.ask(http.MethodPost, path, fmt.Sprintf(`{"name": "m%d", "address": %q}`, e.Member, r.url(r.config.group(e.Group), e.Member)))
	case "remove":
		if m == nil || !m.added {
			return nil
		}
		if err := r.ask(http.MethodDelete, one, ""); err != nil {
			return err
		}
		delete(of, e.Member)
		of[-e.Member] = m
		return nil
	case "drain", "enable":
		if m == nil || m.drained == (e.Do == "drain") {
			return nil
		}
		if m.drained = e.Do == "drain"; !m.drained {
			m.at.Left.Store(0)
		}
		return r.ask(http.MethodPatch, one, fmt.Sprintf(`{"state": %q}`, e.Do))
	}
	return r.reload(e)
}

// reload changes the configuration as an event says.
func (r *run) reload(e *event) error {
	switch e.Do {
	case "loops":
		fmt.Sscan(e.Value, &r.config.Loops)
	case "sandbox":
		r.config.Sandbox = e.Value
	case "balance":
		r.config.group(e.Group).Balance = e.Value
	case "file":
		g, of := r.config.group(e.Group), r.members[e.Group]
		if i := slices.Index(g.Members, e.Member); i >= 0 {
			g.Members = slices.Delete(g.Members, i, i+1)
			of[-e.Member] = of[e.Member]
			delete(of, e.Member)
		} else {
			g.Members = append(g.Members, e.Member)
			r.join(e.Group, e.Member, false)
		}
	case "listener":
		name := "more-" + e.Value
		if i := slices.IndexFunc(r.config.Listeners, func(l *listener) bool { return l.Name == name }); i >= 0 {
			r.config.Listeners = slices.Delete(r.config.Listeners, i, i+1)
		} else {
			l := &listener{Name: name, Network: "tcp", Group: e.Group}
			fmt.Sscan(e.Value, &l.Port)
			r.config.Listeners = append(r.config.Listeners, l)
		}
	}
	file := filepath.Join(r.d.Dir, "penstock.yaml")
	if err := os.WriteFile(file, []byte(r.config.text(&r.places)), 0o644); err != nil {
		return err
	}
	return r.ask(http.MethodPost, "/v1/reload", "")
}

// ask makes a request, again while no worker answers. One whose answer was lost may have been carried out: then it is a conflict the
// next time.
func (r *run) ask(method, path, body string) error {
	var refused error
	lost := false
	err := proc.Until(method+" "+path, world.Patience, 100*time.Millisecond, func() error {
		_, err := r.d.Ask(method, path, body)
		if lost && errors.Is(err, admin.ErrConflict) {
			return nil
		}
		lost = true
		if err != nil && !errors.Is(err, admin.ErrNoWorker) {
			refused, err = err, nil
		}
		return err
	})
	return errors.Join(err, refused)
}

// check compares the daemon with the model: which members it says that there are, which get flows, and which listeners serve.
func (r *run) check(after string) {
	if err := proc.Until("the members as they should be", world.Patience, 50*time.Millisecond, r.compare); err != nil {
		r.fault("after %s: %v", after, err)
		return
	}
	deaths := int64(len(r.w.Kills.List())) // which whoever goes on from now on has survived
	for _, of := range r.members {
		for n, m := range of {
			if (n < 0 || m.drained) && m.at.Left.Load() == 0 {
				r.w.Leave(m.at, deaths)
			}
		}
	}
	since := time.Now().UnixNano()
	err := proc.Until("a flow for each member", world.Patience, 20*time.Millisecond, func() error {
		for name, of := range r.members {
			for n, m := range of {
				if n > 0 && !m.drained && m.at.Last.Load() < since {
					return fmt.Errorf("member m%d of %s gets none", n, name)
				}
			}
		}
		return nil
	})
	if err != nil {
		r.fault("after %s: %v", after, err)
	}
	r.probes.all(r.fault, after)
	for _, l := range r.config.Listeners {
		if strings.HasPrefix(l.Name, "more-") {
			r.w.Try(&world.Place{Name: l.Name, Network: l.Network, Addr: r.addr(l), Upstream: "tcp"})
		}
	}
}

// compare returns an error if the daemon's list of members is not the model's.
func (r *run) compare() error {
	text, err := r.d.Get("/v1/groups")
	if err != nil {
		return err
	}
	var in struct {
		Groups []struct {
			Name    string
			Members []struct{ Name, State string }
		}
	}
	if err := json.Unmarshal(text, &in); err != nil {
		return err
	}
	is, want := []string{}, []string{}
	for _, g := range in.Groups {
		if r.members[g.Name] == nil { // of a probed listener, whose clients know more
			continue
		}
		for _, m := range g.Members {
			is = append(is, fmt.Sprintf("%s/%s drained: %v", g.Name, m.Name, m.State == "drained"))
		}
	}
	for name, of := range r.members {
		for n, m := range of {
			if n > 0 {
				want = append(want, fmt.Sprintf("%s/m%d drained: %v", name, n, m.drained))
			}
		}
	}
	slices.Sort(is)
	slices.Sort(want)
	if !slices.Equal(is, want) {
		return fmt.Errorf("they are %v, and should be %v", is, want)
	}
	return nil
}
