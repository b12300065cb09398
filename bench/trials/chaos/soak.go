//go:build linux

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/penstock/penstock/bench/internal/admin"
	"github.com/penstock/penstock/bench/internal/proc"
	"github.com/penstock/penstock/bench/internal/world"
)

// A soak is long phases in which nothing dies, with short ones between them in which the worker is killed and upgraded.
// All the time the configuration is reloaded, with other members and listeners, and members are added and removed by
// the API.
//
//	quiet ── storm ── quiet ── storm ── … ── quiet
//
// Only a quiet phase is long enough to tell whether memory grows; the last one ends with a balance.
type soak struct {
	s       *settings
	w       *world.World
	d       *world.Daemon
	o       options
	config  string // with soakMembers and soakListener in it
	first   string // that the daemon begins with
	balance *soakBalance
	rand    *rand.Rand       // of changes
	binary  [2]world.Program // to upgrade to, there and back

	mu       sync.Mutex
	aborts   int64 // memoryAborts at the beginning
	phase    string
	replaced int // times that the keeper has replaced itself
	reloads  int
	changes  int // of members, by the API
	failed   int // requests while there was no worker
}

// What a soak replaces in its configuration.
const (
	soakMembers  = "SOAK-MEMBERS"
	soakListener = "SOAK-LISTENER"
)

// soakGroup is the group, and the listener, whose members change. The daemon forgets the numbers of members that are
// gone, so that their flows are missing in its sums.
const soakGroup = "changing"

// soakUpstreams are the members that the file has, or not; the last one is the API's.
const soakUpstreams = 5

// soakUpstream returns the address of an upstream whose membership changes.
func (o options) soakUpstream(i int) string { return fmt.Sprintf("%s:%d", o.host, 20950+i) }

// soakPlaces returns the listeners of a soak, and its configuration, in which soakMembers and soakListener are to be replaced.
func (o options) soakPlaces() (all []*world.Place, config string) {
	all, config = o.places()
	p := &world.Place{Name: soakGroup, Network: "tcp", Addr: o.host + ":20940", Upstream: "tcp", Changing: true}
	config = strings.Replace(config, "groups:\n", fmt.Sprintf("groups:\n  %s: {members: [%s]}\n", soakGroup, soakMembers), 1)
	config += fmt.Sprintf("  %s: {listen: \"tcp://%s\", to: %s}\n%s", p.Name, p.Addr, soakGroup, soakListener)
	return append(all, p), config
}

// fill returns the configuration with other members, and with a listener more or not.
func (k *soak) fill() string {
	var members []string
	for i := range soakUpstreams - 1 {
		if k.rand.IntN(2) == 0 {
			members = append(members, fmt.Sprintf("{to: \"tcp://%s\", weight: %d}", k.o.soakUpstream(i), 1+k.rand.IntN(8)))
		}
	}
	if len(members) == 0 {
		members = append(members, fmt.Sprintf("\"tcp://%s\"", k.o.soakUpstream(0)))
	}
	listener := ""
	if k.rand.IntN(2) == 0 {
		listener = fmt.Sprintf("  more: {listen: \"tcp://%s:20941\", to: %s}\n", k.o.host, soakGroup)
	}
	return strings.NewReplacer(soakMembers, strings.Join(members, ", "), soakListener, listener).Replace(k.config)
}

// newSoak prepares a soak.
func (s *settings) newSoak(w *world.World, o options) (*soak, error) {
	if s.sampling == 0 {
		s.sampling = time.Second
	}
	w.Rate = cmp.Or(s.rate, 16) * mib
	s.between = max(s.between, s.soak/2000)
	k := &soak{s: s, w: w, o: o, rand: w.Random(0, 9)}
	k.balance = newSoakBalance(min(max(s.soak/200, 200*ms), 20*time.Second), 2*time.Minute, s.growth)
	other := filepath.Join(filepath.Dir(o.dir), "penstock-other") // the same one: what it does is not what is tested, but that it takes over
	text, err := os.ReadFile(s.binary)
	if err == nil {
		err = os.WriteFile(other, text, 0o755)
	}
	k.binary = [2]world.Program{{Name: "other", Path: other}, {Name: "first", Path: s.binary}}
	return k, err
}

// places returns the listeners of the load, and the first configuration.
func (k *soak) places() (all []*world.Place, config string) {
	all, k.config = k.o.soakPlaces()
	k.first = k.fill()
	return all, k.first
}

// listen starts the upstreams whose membership changes.
func (k *soak) listen() error {
	for i := range soakUpstreams {
		l, err := net.Listen("tcp", k.o.soakUpstream(i))
		if err != nil {
			return err
		}
		k.w.Serve(l, 0, nil)
	}
	return nil
}

// begin notes what the daemon has before the load comes.
func (k *soak) begin(d *world.Daemon) (err error) {
	k.d, k.aborts = d, memoryAborts()
	k.balance.before, err = world.LeastCensus(d.CensusAtRest)
	return err
}

// run is the whole soak.
func (k *soak) run(r *rand.Rand) error {
	end := time.Now().Add(k.s.soak)
	cycle := min(max(k.s.soak/4, min(k.s.soak/2, 5*time.Minute)), 20*time.Minute)
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() { k.sample(ctx) })
	all.Go(func() { k.change(ctx) })
	all.Go(func() { k.show(ctx) })
	defer func() {
		cancel()
		all.Wait()
	}()
	for n := 0; time.Until(end) > 0; n++ {
		k.enter("quiet")
		if err := k.pause(min(cycle*4/5, time.Until(end))); err != nil || k.s.interrupted() {
			return err
		}
		if time.Until(end) < cycle/2 { // no time for a storm and a quiet phase after it
			if err := k.pause(time.Until(end)); err != nil {
				return err
			}
			break
		}
		k.enter("storm")
		if err := k.storm(r, time.Now().Add(cycle/5), n); err != nil {
			return err
		}
	}
	return k.d.Failed()
}

func (k *soak) enter(phase string) {
	k.mu.Lock()
	k.phase = phase
	k.mu.Unlock()
}

// pause waits, unless the daemon ends or the run is to end now.
func (k *soak) pause(d time.Duration) error {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(50 * ms) {
		if err := k.d.Failed(); err != nil {
			return err
		}
		select {
		case sig := <-k.s.interrupt:
			k.s.interrupt <- sig // the phases after this one end too
			return nil
		default:
		}
	}
	return nil
}

// storm kills the worker until a time, and upgrades the daemon there and back.
func (k *soak) storm(r *rand.Rand, until time.Time, n int) error {
	for _, b := range k.binary {
		if err := k.d.Ready(world.Patience); err != nil {
			return err
		}
		if err := k.d.Upgrade(k.w, b); err != nil {
			return err
		}
		k.mu.Lock()
		k.replaced++
		k.mu.Unlock()
	}
	for first := true; first || time.Now().Before(until); first = false {
		if err := k.d.Ready(world.Patience); err != nil {
			return errors.Join(k.d.Failed(), err)
		}
		if err := k.pause(time.Duration(r.Int64N(int64(2*k.s.every) + 1))); err != nil {
			return err
		}
		if err := k.s.killOne(k.w, k.d, deaths[r.IntN(len(deaths))]); err != nil {
			return errors.Join(k.d.Failed(), err)
		}
	}
	return k.d.Ready(world.Patience)
}

// sample measures once a second.
func (k *soak) sample(ctx context.Context) {
	for begin := time.Now(); ctx.Err() == nil; wait(ctx, k.s.sampling) {
		if c, err := k.d.Census(); err == nil {
			k.mu.Lock()
			k.balance.sample(&c, time.Since(begin), k.replaced)
			k.mu.Unlock()
		}
	}
}

// wait returns after d, or when the context ends.
func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// change reloads the configuration and changes members, until the context ends.
func (k *soak) change(ctx context.Context) {
	for {
		wait(ctx, time.Duration(k.rand.Int64N(int64(2*k.s.between)+1)))
		if ctx.Err() != nil {
			return
		}
		var act func() error
		count := &k.reloads
		if config := k.fill(); k.rand.IntN(3) > 0 {
			act = func() error { return k.unlessKilled(func() error { return k.load(config) }) }
		} else {
			act, count = func() error { return k.unlessKilled(k.changeListed) }, &k.changes
		}
		var err error
		for end := time.Now().Add(world.Patience); ctx.Err() == nil; wait(ctx, 100*ms) {
			err = act()
			if err == nil || !errors.Is(err, admin.ErrNoWorker) || time.Now().After(end) {
				break
			}
			k.mu.Lock()
			k.failed++
			k.mu.Unlock()
		}
		k.mu.Lock()
		*count++
		k.mu.Unlock()
		if err != nil && ctx.Err() == nil {
			k.w.Tally.Fault(world.OtherFaults, "a reload or a change of members: %v", err)
		}
	}
}

// load has another configuration loaded.
func (k *soak) load(config string) error {
	file := filepath.Join(k.o.dir, "penstock.yaml")
	if err := os.WriteFile(file+".new", []byte(config), 0o644); err != nil {
		return err
	}
	if err := os.Rename(file+".new", file); err != nil {
		return err
	}
	_, err := k.d.Ask(http.MethodPost, "/v1/reload", "")
	return err
}

// unlessKilled does something to the daemon. If a worker was killed meanwhile, an error is repeated: one that was to take over is gone, and one that
// dies forgets the changes of its last second.
func (k *soak) unlessKilled(act func() error) error {
	start := time.Now()
	err := act()
	if err != nil && k.w.Kills.Between(start, time.Time{}, 0) {
		return errors.Join(admin.ErrNoWorker, err)
	}
	return err
}

// changeListed removes the API's member if it is in the list of members, and adds it otherwise. One that is added already, which a worker has
// answered while it handed over or before it died, is in the list once the next worker has it.
func (k *soak) changeListed() error {
	const list = "/v1/groups/" + soakGroup
	listed, err := k.listed(list)
	switch {
	case err != nil:
		return err
	case listed:
		_, err = k.d.Ask(http.MethodDelete, list+"/members/api", "")
		return err
	}
	_, err = k.d.Ask(http.MethodPost, list+"/members", fmt.Sprintf(`{"name": "api", "address": %q}`, k.ownMember()))
	if !errors.Is(err, admin.ErrConflict) {
		return err
	}
	missing := proc.Until("the member that the API says it has", world.Patience, 50*ms, func() error {
		if listed, failed := k.listed(list); failed != nil || !listed {
			return cmp.Or(failed, errors.New("it is not in the list"))
		}
		return nil
	})
	if missing != nil {
		return errors.Join(err, missing)
	}
	return nil
}

func (k *soak) ownMember() string { return "tcp://" + k.o.soakUpstream(soakUpstreams-1) }

// listed reports whether the API's member is in a list of members.
func (k *soak) listed(list string) (bool, error) {
	text, err := k.d.Ask(http.MethodGet, list, "")
	if err != nil {
		return false, err
	}
	var g struct {
		Members []struct{ Name, Address string }
	}
	if err := json.Unmarshal(text, &g); err != nil {
		return false, fmt.Errorf("%s: %w: %s", list, err, text)
	}
	for _, m := range g.Members {
		if m.Address == k.ownMember() {
			return true, nil
		}
	}
	return false, nil
}

// show shows the progress, once a minute.
func (k *soak) show(ctx context.Context) {
	for begin := time.Now(); ; {
		if wait(ctx, k.s.report); ctx.Err() != nil {
			return
		}
		c, err := k.d.Census()
		k.mu.Lock()
		t := k.w.Tally
		fmt.Fprintf(t.Out, "%7v %s: %d flows open, %d made, %.2f GB, %d kills, %d reloads, %d changes of members; ", time.Since(begin).Round(time.Second), k.phase,
			k.w.Open.Load(), t.Get(world.FlowsMade), float64(t.Get(world.BytesMoved))/1e9, len(slices.DeleteFunc(k.w.Kills.List(), func(k world.Kill) bool { return k.Plan })), k.reloads, k.changes)
		if err != nil {
			fmt.Fprintf(t.Out, "%v", err)
		} else {
			fmt.Fprintf(t.Out, "worker %.1f MiB, %.0f fds, %.0f goroutines, %.0f pipes; keeper %.1f MiB, %.0f fds", c.WorkerRSS/1024, c.WorkerFDs, c.Goroutines, c.Pipes, c.KeeperRSS/1024, c.KeeperFDs)
		}
		fmt.Fprintf(t.Out, "; faults: %v\n", !t.Good())
		k.mu.Unlock()
	}
}

// end compares what the daemon has when all flows have ended with what it had before. Its caller has ended them.
func (k *soak) end() {
	if err := k.load(k.first); err != nil { // it has as many listeners as there were
		k.w.Tally.Fault(world.OtherFaults, "the last reload: %v", err)
	}
	after, over, err := world.SettleCensus(&k.balance.before, k.d.CensusAtRest, world.Patience)
	if err != nil {
		over = append(over, err.Error())
	}
	fmt.Fprintf(k.w.Tally.Out, "\n%d reloads and %d changes of members by the API; %d requests met no worker and were repeated\n", k.reloads, k.changes, k.failed)
	if n := memoryAborts() - k.aborts; n > 0 {
		fmt.Fprintf(k.w.Tally.Out, "%d connections were reset by the kernel, because TCP had no memory left on this machine: that many of the faults may have no other reason\n", n)
	}
	for _, fault := range k.balance.print(k.w.Tally.Out, &after, over) {
		k.w.Tally.Fault(world.Leaks, "%s", fault)
	}
}
