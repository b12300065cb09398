//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/penstock/penstock/bench/internal/proc"
	"github.com/penstock/penstock/bench/internal/registry"
	"github.com/penstock/penstock/bench/internal/trial"
	"github.com/penstock/penstock/bench/internal/world"
)

// A fleetRelay is a relay of a fleet.
type fleetRelay struct {
	*trial.Daemon
	link   *link
	places []*probedListener
}

// A published version is the model's.
type published struct {
	number int // in the names of its members
	parent int // index of the one before; -1: none
	bad    bool
}

// A fleetRun is one script that is played with a fleet.
type fleetRun struct {
	places
	script *script
	etcd   *registry.Etcd
	tool   *link
	relays []*fleetRelay
	w      *world.World
	probes *probes
	binary string

	versions []published
	current  int   // index of what all relays should run
	may      []int // indices of what may be current besides, because the tool does not know
	numbers  int
	busy     chan struct{} // closed when the tool that runs has ended; what is above is that tool's until then

	mu        sync.Mutex
	disturbed time.Time // until when something is wrong that can hinder a publish
}

// toolPatience is how long a tool may take.
const toolPatience = 3 * time.Minute

// playFleet is play of a script with a fleet.
func playFleet(s *script, binary, dir string, out io.Writer) (good bool, err error) {
	r := &fleetRun{places: places{dir: dir, host: ownHost()}, script: s, binary: binary, w: world.New(s.Seed, out, dir), busy: make(chan struct{})}
	close(r.busy)
	r.probes = &probes{p: &r.places, arrived: map[string]int{}}
	defer r.probes.close()
	if err := r.startMembers(); err != nil {
		return false, err
	}
	if r.etcd, err = registry.NewEtcd(filepath.Join(dir, "etcd")); err != nil {
		return false, err
	}
	defer r.etcd.Close()
	if r.tool, err = newLink(r.etcd.URL(), s.Seed, 0); err != nil {
		return false, err
	}
	defer r.tool.close()
	r.publish(&event{Do: "publish", Value: balances[0]})
	<-r.busy
	if !r.w.Tally.Good() {
		return false, errors.New("the first version is not published")
	}
	for i := range s.Config.Fleet.Relays {
		one, err := r.newRelay(i)
		if err != nil {
			return false, err
		}
		defer one.link.close()
		defer one.Kill()
	}
	stop, all := make(chan struct{}), sync.WaitGroup{}
	defer all.Wait()
	defer close(stop)
	for _, one := range r.relays {
		all.Go(func() { r.load(one, stop) })
	}
	defer func() { <-r.busy }()
	r.check("the start")
	for i, e := range s.Events {
		if !r.w.Tally.Good() {
			break
		}
		r.w.Sleep(e.Rest)
		what := fmt.Sprintf("event %d, %v", i+1, e)
		if err := r.happen(&e); err != nil {
			r.fault("%s: %v", what, err)
		}
		if i+1 == len(s.Events) || !s.Events[i+1].Close {
			r.check(what)
		}
	}
	<-r.busy
	if good = r.w.Tally.Good(); !good {
		r.w.Tally.Print()
		for _, one := range r.relays {
			fmt.Fprintf(out, "last lines of the log of %s:\n%s\n", filepath.Base(one.Dir), one.LogTail(8))
		}
	}
	return good, nil
}

func (r *fleetRun) fault(format string, args ...any) {
	r.w.Tally.Fault(world.OtherFaults, format, args...)
}

// startMembers starts the upstreams.
func (r *fleetRun) startMembers() error {
	for _, name := range fleetMembers {
		at, serve := r.fleetMember(name), func(net.Conn) {}
		switch name {
		case "nobody":
			continue
		case "udp":
			if err := r.probes.member("udp", "udp://"+at); err != nil {
				return err
			}
			continue
		case "one", "two":
			if err := r.probes.member("tcp", "tcp://"+at); err != nil {
				return err
			}
			continue
		case "silent":
			serve = func(c net.Conn) { io.Copy(io.Discard, c) }
		}
		l, err := net.Listen("tcp", at)
		if err != nil {
			return err
		}
		r.probes.closes = append(r.probes.closes, l.Close)
		r.probes.serving.Go(func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go func() {
					defer c.Close()
					c.SetDeadline(time.Now().Add(world.Patience))
					serve(c)
				}()
			}
		})
	}
	return nil
}

// fleetURL returns where the fleet's configuration is, by a link.
func fleetURL(l *link) string { return "etcd" + strings.TrimPrefix(l.url, "http") + fleetKey }

const fleetKey = "/penstock/world"

// newRelay starts a relay.
func (r *fleetRun) newRelay(i int) (*fleetRelay, error) {
	name := fmt.Sprint("relay-", i+1)
	dir := filepath.Join(r.dir, name)
	l, err := newLink(r.etcd.URL(), r.script.Seed, uint64(i)+1)
	if err != nil {
		return nil, err
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	one := &fleetRelay{link: l, Daemon: trial.DaemonAt(r.binary, dir, "run", "-c", fleetURL(l), "--node", name, "--state", filepath.Join(dir, "state"))}
	one.places = []*probedListener{{Kind: "tcp", Port: 21001 + i}, {Kind: "udp", Port: 22001 + i}}
	one.Env = r.env(i, dir)
	one.Timeout, one.Attr.Setpgid = 5*time.Second, true
	r.relays = append(r.relays, one)
	if err := one.Begin(); err != nil {
		return nil, err
	}
	return one, one.Ready(world.Patience)
}

// env returns the variables that the configuration has.
func (r *fleetRun) env(i int, dir string) []string {
	return []string{"HOST=" + r.host, fmt.Sprint("WEB=", 21001+i), fmt.Sprint("DNS=", 22001+i), "ADMIN=" + filepath.Join(dir, "admin")}
}

// load has clients come to a relay, so that there is something to judge it by.
func (r *fleetRun) load(one *fleetRelay, stop chan struct{}) {
	random := rand.New(rand.NewPCG(r.script.Seed, uint64(one.places[0].Port)))
	var open sync.WaitGroup
	defer open.Wait()
	room := make(chan struct{}, 100)
	for {
		select {
		case <-stop:
			return
		case <-time.After(time.Duration(random.IntN(100)) * time.Millisecond):
		}
		select {
		case room <- struct{}{}:
		default:
			continue
		}
		d := one.places[0]
		if random.IntN(4) == 0 {
			d = one.places[1]
		}
		open.Go(func() {
			defer func() { <-room }()
			c, err := net.DialTimeout(d.Kind, d.addr(&r.places), 3*time.Second)
			if err == nil {
				c.SetDeadline(time.Now().Add(3 * time.Second))
				ask(c, r.probes.next())
				c.Close()
			}
		})
	}
}

// happen makes an event happen. Its error is what should not have been.
func (r *fleetRun) happen(e *event) error {
	switch e.Do {
	case "publish", "outage":
		<-r.busy
		r.publish(e)
	case "rollback":
		<-r.busy
		r.rollback()
	case "registry":
		r.disturb(e.For)
		r.etcd.Kill()
		r.w.Sleep(e.For)
		return r.etcd.Start()
	case "link":
		for i, l := range r.links() {
			if e.Group == "all" || i == 0 && e.Group == "tool" || i == e.Member && e.Group == "relay" {
				l.fail(e.Value, e.For)
			}
		}
		r.disturb(e.For)
	case "relay":
		r.disturb(0)
		return r.relayEvent(r.relays[e.Member-1], e.Value)
	}
	return nil
}

// links are all, that of the tool first.
func (r *fleetRun) links() []*link {
	all := []*link{r.tool}
	for _, one := range r.relays {
		all = append(all, one.link)
	}
	return all
}

// disturb notes that something is wrong for so long. Its effects last: leases, pauses between attempts.
func (r *fleetRun) disturb(long time.Duration) {
	const after = 40 * time.Second
	r.mu.Lock()
	defer r.mu.Unlock()
	if until := time.Now().Add(long + after); until.After(r.disturbed) {
		r.disturbed = until
	}
}

// undisturbed reports whether nothing is wrong that can hinder a publish.
func (r *fleetRun) undisturbed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Now().After(r.disturbed)
}

func (r *fleetRun) relayEvent(one *fleetRelay, what string) error {
	switch what {
	case "worker killed":
		if one.Signal(syscall.SIGKILL) > 0 && !r.script.Config.Fleet.Kept {
			break
		}
		return nil
	case "stopped":
		if code, killed := one.Stop(world.Patience); killed || code != 0 && code != world.DrainedLate {
			return fmt.Errorf("it ended with code %d after SIGTERM, killed: %v", code, killed)
		}
	}
	one.Kill()
	return one.Begin()
}

// command runs a tool while other things happen. then is told what it has printed, and whether nothing was in its way.
func (r *fleetRun) command(then func(out string, undisturbed bool), args ...string) {
	done, undisturbed := make(chan struct{}), r.undisturbed()
	r.busy = done
	cmd := exec.Command(r.binary, args...)
	cmd.Env = append(append(os.Environ(), "PENSTOCK_BY=world"), r.env(-1, r.dir)...)
	go func() {
		defer close(done)
		kill := time.AfterFunc(toolPatience, func() { cmd.Process.Kill() })
		out, _ := cmd.CombinedOutput()
		if !kill.Stop() {
			r.fault("%v has not ended after %v:\n%s", args, toolPatience, out)
		}
		then(string(out), undisturbed && r.undisturbed())
	}()
}

// says returns what a tool says of the version that it was to publish.
func says(out string) (made, unknown bool) {
	return strings.Contains(out, "published version "), strings.Contains(out, "or may still be")
}

func (r *fleetRun) publish(e *event) {
	r.numbers++
	v := published{number: r.numbers, parent: r.current, bad: e.Do == "outage"}
	if len(r.versions) == 0 {
		v.parent = -1
	}
	c := r.script.Config.Fleet
	file := filepath.Join(r.dir, fmt.Sprintf("version-%d.yaml", v.number))
	if err := os.WriteFile(file, []byte(c.text(&r.places, v.number, e.Value)), 0o644); err != nil {
		r.fault("%v", err)
		return
	}
	args := []string{"publish", "-c", file}
	if e.Canary {
		args = append(args, "--canary", c.Share, "--wait", c.Wait.String())
	}
	r.command(func(out string, undisturbed bool) {
		made, unknown := says(out)
		switch {
		case made && v.bad:
			r.fault("a version with which nobody is served (%s) is given to all relays:\n%s", e.Value, out)
		case made:
			r.versions = append(r.versions, v)
			r.current = len(r.versions) - 1
		case unknown && !v.bad:
			r.versions = append(r.versions, v)
			r.may = append(r.may, len(r.versions)-1)
		case undisturbed && !v.bad && !e.Canary:
			r.fault("a version is not published, and nothing was in its way:\n%s", out)
		}
	}, append(args, fleetURL(r.tool))...)
}

func (r *fleetRun) rollback() {
	r.command(func(out string, _ bool) {
		made, unknown := says(out)
		if !made && !unknown {
			return
		}
		parent := r.versions[r.current].parent
		if parent < 0 {
			r.fault("there was nothing to go back to:\n%s", out)
			return
		}
		r.versions = append(r.versions, published{number: r.versions[parent].number, parent: r.current})
		if i := len(r.versions) - 1; made {
			r.current = i
		} else {
			r.may = append(r.may, i)
		}
	}, "rollback", fleetURL(r.tool))
}

// check waits until nothing is wrong any more, and compares the fleet with the model: what is published, what each relay runs, and
// whether clients are served.
func (r *fleetRun) check(after string) {
	<-r.busy
	err := proc.Until("all links to be good", world.Patience+longestWrite, 50*time.Millisecond, func() error {
		for _, l := range r.links() {
			if !l.good() {
				return fmt.Errorf("%v", l)
			}
		}
		return nil
	})
	if err != nil {
		r.fault("after %s: %v", after, err)
		return
	}
	if err := r.decide(); err != nil {
		r.fault("after %s: %v", after, err)
		return
	}
	want := r.versions[r.current].number
	for i, one := range r.relays {
		err := proc.Until("version", world.Patience, 100*time.Millisecond, func() error {
			is, err := one.version()
			if err == nil && is != want {
				err = fmt.Errorf("it runs version %d", is)
			}
			return err
		})
		if err != nil {
			r.fault("after %s: relay %d should run version %d: %v", after, i+1, want, err)
			return
		}
		for _, d := range one.places {
			var err error
			if proc.Until("served", world.Patience, 50*time.Millisecond, func() error { err = r.probes.try(d, "unicast"); return lost(err) }) != nil || err != nil {
				r.fault("after %s: a client (%s) of relay %d, which runs version %d: %v", after, d.Kind, i+1, want, err)
				return
			}
		}
	}
	// Whatever was held somewhere would have come by now.
	if err := r.decide(); err != nil {
		r.fault("after %s: %v", after, err)
	}
}

var versionName = regexp.MustCompile(`^v(\d+)-`)

// version returns the number of the version that a relay runs.
func (one *fleetRelay) version() (int, error) {
	text, err := one.Get("/v1/groups")
	if err != nil {
		return 0, err
	}
	var in struct {
		Groups []struct{ Members []struct{ Name string } }
	}
	if err := json.Unmarshal(text, &in); err != nil {
		return 0, err
	}
	for _, g := range in.Groups {
		for _, m := range g.Members {
			if name := versionName.FindStringSubmatch(m.Name); name != nil {
				return strconv.Atoi(name[1])
			}
		}
	}
	return 0, errors.New("it has no member with a number")
}

// decide looks at what is published, and returns an error if that cannot be.
func (r *fleetRun) decide() error {
	is, text, err := r.published()
	if err != nil {
		return err
	}
	number := func(i int) int { return r.versions[i].number }
	if i := slices.IndexFunc(append([]int{r.current}, r.may...), func(i int) bool { return number(i) == is }); i < 0 {
		return fmt.Errorf("version %d is published, which no tool has said, and not version %d:\n%s", is, number(r.current), text)
	} else if i > 0 {
		r.current = r.may[i-1]
	}
	r.may = nil
	return nil
}

// published returns the number of the version that etcd has, and its text.
func (r *fleetRun) published() (number int, text string, err error) {
	var current, version struct {
		Version int64
		Text    string
	}
	if err := r.read(fleetKey+"/config", &current); err != nil {
		return 0, "", err
	}
	if err := r.read(fmt.Sprintf("%s/versions/%010d", fleetKey, current.Version), &version); err != nil {
		return 0, "", err
	}
	name := regexp.MustCompile(`name: v(\d+)-`).FindStringSubmatch(version.Text)
	if name == nil {
		return 0, "", fmt.Errorf("no version of this run: %q", version.Text)
	}
	number, err = strconv.Atoi(name[1])
	return number, version.Text, err
}

// read reads a key of etcd, which has JSON, past all links.
func (r *fleetRun) read(key string, v any) error {
	body, _ := json.Marshal(map[string][]byte{"key": []byte(key)})
	res, err := r.tool.client.Post(r.etcd.URL()+"/v3/kv/range", "application/json", strings.NewReader(string(body)))
	if err != nil {
		return err
	}
	defer res.Body.Close()
	var out struct{ KVs []struct{ Value []byte } }
	if err := json.NewDecoder(res.Body).Decode(&out); err != nil || len(out.KVs) != 1 {
		return fmt.Errorf("etcd has no %s: %w", key, err)
	}
	return json.Unmarshal(out.KVs[0].Value, v)
}
