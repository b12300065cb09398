package app

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/cmd/penstock/internal/config"
	"github.com/penstock/penstock/cmd/penstock/internal/etcd"
	"github.com/penstock/penstock/cmd/penstock/internal/fleet"
	"github.com/penstock/penstock/cmd/penstock/internal/remote"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/cmd/penstock/internal/upstream"
)

// A fleetPart is the part of the daemon in a fleet: it reports, carries out orders, and shares checks. Nothing runs
// before a configuration, or the command line, names a fleet.
type fleetPart struct {
	d      *daemon
	node   spec.Node
	checks *fleet.Checks
	remote spec.Fleet    // that of the registry that the configuration is from; no Kind: there is none
	lease  *atomic.Int64 // in etcd, which the next worker goes on with; 0: none
	wanted chan struct{} // receives when want has changed

	mu       sync.Mutex
	started  bool
	want     spec.Fleet
	running  spec.Fleet
	presence *fleet.Presence // nil: none
	etcd     *etcd.Client    // of presence
}

// client returns the client of the fleet that the relay is in, and its key; nil: it is in none.
func (p *fleetPart) client() (*etcd.Client, string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.etcd, p.running.Key
}

// newFleetPart returns a fleetPart that does nothing yet.
func newFleetPart(d *daemon, node spec.Node) *fleetPart {
	p := &fleetPart{d: d, node: node, wanted: make(chan struct{}, 1), lease: d.keeping.Values.Word("fleet.lease")}
	p.checks = fleet.NewChecks(fleet.ChecksConfig{Node: node.ID, Tell: p.tell})
	return p
}

// setRegistry notes the fleet of the registry that the configuration is from, if it is from one.
func (p *fleetPart) setRegistry(source *config.Source) {
	if source == nil {
		return
	}
	for _, path := range source.Paths {
		if registry, key, err := spec.ParseRemote(path); err == nil && registry.Kind == "etcd" {
			p.remote = spec.Fleet{Registry: registry, Key: key}
			return
		}
	}
}

// fleetOf returns the fleet of a configuration; without a Kind: there is none.
func (p *fleetPart) fleetOf(cfg *spec.Config) spec.Fleet {
	f := p.remote
	if cfg.Fleet.Registry.Kind != "" {
		f = cfg.Fleet
	}
	f.DrainGrace = 0 // read when it is needed
	return f
}

// use makes the fleet of a configuration the relay's. The caller holds the daemon's lock.
func (p *fleetPart) use(cfg *spec.Config) {
	f := p.fleetOf(cfg)
	p.mu.Lock()
	defer p.mu.Unlock()
	if f == p.want {
		p.changedLocked()
		return
	}
	p.want = f
	if !p.started {
		p.started = true
		p.d.background.Go(p.run)
	}
	select {
	case p.wanted <- struct{}{}:
	default:
	}
}

// expect says before the members are there that their checks will be shared.
func (p *fleetPart) expect(cfg *spec.Config) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.started && p.fleetOf(cfg).Registry.Kind != "" && spec.ValidNode(p.node.ID) {
		p.checks.Expect()
	}
}

// changed says that there may be something to report.
func (p *fleetPart) changed() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.changedLocked()
}

func (p *fleetPart) changedLocked() {
	if p.presence != nil {
		p.presence.Changed()
	}
}

// run is in one fleet after the other, until the daemon closes.
func (p *fleetPart) run() {
	for {
		p.mu.Lock()
		f := p.want
		p.mu.Unlock()
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() {
			defer close(done)
			p.join(ctx, f)
		}()
		closing := false
		select {
		case <-p.wanted:
		case <-p.d.background.closing:
			closing = true
		}
		cancel()
		<-done
		if closing {
			return
		}
	}
}

// join is in a fleet until ctx ends.
func (p *fleetPart) join(ctx context.Context, f spec.Fleet) {
	if f.Registry.Kind == "" {
		p.d.setNodeDrain(false, "", "")
		p.d.fleetSplits(fleet.SplitsChange{All: true})
		return
	}
	name := fleetName(f)
	if !spec.ValidNode(p.node.ID) {
		p.tell(slog.LevelError, "not in the fleet: the host's name is not a valid id; allowed: --node with up to 253 letters, digits, _, . and -", nil)
		return
	}
	client, err := etcd.New(etcd.Config{Remote: remote.Of(f.Registry)})
	if err != nil {
		p.tell(slog.LevelError, "not in the fleet "+name, err)
		return
	}
	defer client.Close()
	presence := fleet.NewPresence(fleet.PresenceConfig{
		Client: client, Key: f.Key, Node: p.node, Lease: p.lease.Load(), Leased: func(id etcd.LeaseID) { p.lease.Store(id) },
		Report: p.d.fleetReport, Carry: p.d.carryOut, Tell: p.tell, Checks: p.checks,
		Drain: func(o *fleet.DrainOrder) {
			if o == nil {
				p.d.setNodeDrain(false, "", "")
			} else {
				p.d.setNodeDrain(true, o.By, o.Why)
			}
		},
	})
	p.mu.Lock()
	p.presence, p.running, p.etcd = presence, f, client
	p.mu.Unlock()
	var running sync.WaitGroup
	running.Go(func() { p.checks.Run(ctx, client, f.Key) })
	running.Go(func() { p.d.followBans(ctx, client, f.Key) })
	running.Go(func() { p.d.followSplits(ctx, client, f.Key) })
	presence.Run(ctx)
	running.Wait()
	p.mu.Lock()
	p.presence, p.etcd = nil, nil
	p.mu.Unlock()
	if p.d.handingOver.Load() { // the next worker has the lease
		return
	}
	leave, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	presence.Leave(leave, p.lease.Swap(0))
}

// fleetName returns the URL of a fleet, without options.
func fleetName(f spec.Fleet) string {
	servers := f.Registry.ServerList()
	for i, s := range servers {
		_, servers[i], _ = strings.Cut(s, "://")
	}
	return "etcd://" + strings.Join(servers, ",") + f.Key
}

// tell logs what an operator should know.
func (p *fleetPart) tell(level slog.Level, message string, err error) {
	attrs := []any{}
	if err != nil {
		attrs = append(attrs, "error", err)
		message = config.PlainLine(message)
	}
	p.d.log.Log(context.Background(), level, message, attrs...)
	if err != nil {
		message += ": " + config.OneLine(err)
	}
	p.d.log.event(level, "fleet", "daemon", message)
}

// status returns the part for the API; nil: there is none.
func (p *fleetPart) status() *api.Fleet {
	p.mu.Lock()
	presence, f := p.presence, p.running
	p.mu.Unlock()
	if presence == nil {
		return nil
	}
	s := presence.Status()
	out := &api.Fleet{Source: fleetName(f), Node: p.node.ID, Present: s.Present, Since: s.Since, Reported: s.Reported, Reports: s.Reports, Failures: s.Failures, Conflict: s.Conflict}
	if s.Err != nil {
		out.Error = config.OneLine(s.Err)
	}
	out.SharedMembers, out.CheckedMembers = p.checks.Count()
	return out
}

// share is upstream.Options.Share.
func (p *fleetPart) share(c upstream.SharedCheck) (upstream.SharedMember, upstream.CheckShare) {
	m, s := p.checks.Share(fleet.SharedCheck{
		Scope: c.Scope, Member: c.Member, Checkers: c.Checkers, Patience: c.Patience,
		Update: func(s fleet.Share) { c.Update(upstream.CheckShare(s)) },
	})
	return m, upstream.CheckShare(s)
}
