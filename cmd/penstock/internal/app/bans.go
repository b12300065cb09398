package app

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/admin"
	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/cmd/penstock/internal/config"
	"github.com/penstock/penstock/cmd/penstock/internal/etcd"
	"github.com/penstock/penstock/cmd/penstock/internal/fleet"
	"github.com/penstock/penstock/cmd/penstock/internal/lists"
	"github.com/penstock/penstock/cmd/penstock/internal/saved"
)

// bans are the networks that operators have banned: in memory for the next worker, and in the folder of --state for the next start.
type bans struct {
	lists.Bans
	file    string        // empty: none
	unsaved atomic.Bool   // the file has not the last change
	soon    chan struct{} // the next worker is to be told of a change
}

// promptBans is up to how many bans each change is told to the next worker before it is answered. All are written for one, which takes longer
// the more there are: 32 bans a second were all that could be had when there were 8,000.
const promptBans = 1024

// soonBans is the least time between two such writings when there are more.
const soonBans = 100 * time.Millisecond

// maxBansFile bounds the file.
const maxBansFile = 64 << 20

// restore begins with the bans of the worker before, or of the service before.
func (b *bans) restore(state string, first bool, before []lists.Ban) error {
	b.soon = make(chan struct{}, 1)
	if state != "" {
		b.file = filepath.Join(state, "bans.json")
	}
	now := time.Now()
	if !first || b.file == "" {
		b.unsaved.Store(true) // the worker before may have died before it had written them
		_, err := b.Change(now, before, nil)
		return err
	}
	info, err := os.Stat(b.file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil && (!info.Mode().IsRegular() || info.Size() > maxBansFile) {
		err = errors.New(b.file + " is not a file of bans")
	}
	var text []byte
	if err == nil {
		text, err = os.ReadFile(b.file)
	}
	var list []lists.Ban
	if err == nil {
		list, err = parseBans(text)
	}
	if err == nil {
		_, err = b.Change(now, list, nil)
	}
	return err
}

func parseBans(text []byte) (list []lists.Ban, err error) {
	return list, json.Unmarshal(text, &list)
}

// save writes the file if a ban has changed. One goroutine calls it.
func (b *bans) save() error {
	if !b.unsaved.Swap(false) || b.file == "" {
		return nil
	}
	text, err := json.Marshal(b.All(time.Now()))
	if err != nil {
		return err
	}
	return saved.WriteFile(b.file, "", text)
}

// Bans returns the bans that hold.
func (d *daemon) Bans() api.Bans {
	out := api.Bans{Hits: d.bans.Hits()}
	for _, b := range d.bans.All(time.Now()) {
		out.Bans = append(out.Bans, banOf(b))
	}
	return out
}

func banOf(b lists.Ban) api.Ban {
	return api.Ban{Network: b.Network, At: b.At, Until: b.Until, By: b.By, Why: b.Why, Fleet: b.Fleet}
}

// fleetTimeout bounds how long whoever bans waits for the fleet's etcd.
const fleetTimeout = 5 * time.Second

// Ban bans a network: here at once, and in the whole fleet.
func (d *daemon) Ban(ctx context.Context, n api.NewBan) (api.Ban, error) {
	p, err := lists.ParseNetwork(n.Network)
	if err != nil {
		return api.Ban{}, api.NewProblem(http.StatusBadRequest, err.Error(), "an address, or a network such as 192.0.2.0/24")
	}
	now := time.Now().UTC().Truncate(time.Millisecond)
	b := lists.Ban{Network: p, At: now, By: config.PlainLine(admin.Actor(ctx)), Why: config.PlainLine(n.Why), EndFlows: n.EndFlows}
	if n.For > 0 {
		b.Until = now.Add(time.Duration(n.For * float64(time.Second)))
	}
	if err := b.Check(); err != nil {
		return api.Ban{}, api.NewProblem(http.StatusBadRequest, err.Error(), "a network that is not everybody")
	}
	if was, ok := d.bans.Find(p); ok {
		b.Fleet = was.Fleet // until the fleet has the new one, it has the one before
	}
	if _, err := d.bans.Change(time.Now(), []lists.Ban{b}, nil); err != nil {
		return api.Ban{}, api.NewProblem(http.StatusConflict, err.Error(), "unban others first, or a list: lists in the configuration")
	}
	told, failed := d.inFleet(ctx, func(ctx context.Context, c *etcd.Client, key string) error { return fleet.PutBan(ctx, c, key, b) })
	if told && failed == nil {
		b.Fleet = true
		d.bans.Change(time.Now(), []lists.Ban{b}, nil)
	}
	d.bansChanged()
	out := banOf(b)
	if failed != nil {
		out.Error = "the fleet was not told: " + config.OneLine(failed)
	}
	if b.EndFlows {
		out.Ended = d.endBanned(ctx, []lists.Ban{b})
	}
	return out, nil
}

// Unban lifts the ban of a network, here and in the whole fleet.
func (d *daemon) Unban(ctx context.Context, network string) (api.Ban, error) {
	p, err := lists.ParseNetwork(network)
	if err != nil {
		return api.Ban{}, api.NewProblem(http.StatusBadRequest, err.Error(), "an address, or a network such as 192.0.2.0/24")
	}
	b, ok := d.bans.Find(p)
	if !ok {
		return api.Ban{}, api.NotFound("ban", p.String(), "the networks of penstock bans")
	}
	if b.Fleet {
		told, err := d.inFleet(ctx, func(ctx context.Context, c *etcd.Client, key string) error {
			_, err := fleet.LiftBan(ctx, c, key, p)
			return err
		})
		if told && err != nil {
			return api.Ban{}, api.NewProblem(http.StatusBadGateway, "the ban is of the whole fleet, whose etcd does not answer: "+config.OneLine(err), "again, when it does")
		}
	}
	d.bans.Change(time.Now(), nil, []netip.Prefix{p})
	d.bansChanged()
	return banOf(b), nil
}

// inFleet does something in the fleet's etcd, and reports whether there is a fleet.
func (d *daemon) inFleet(ctx context.Context, do func(context.Context, *etcd.Client, string) error) (bool, error) {
	c, key := d.fleet.client()
	if c == nil {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, fleetTimeout)
	defer cancel()
	return true, do(ctx, c, key)
}

// bansChanged saves the bans. A ban that was answered is known to the next worker, or if there are many, soon. The file, which is for the next start, is written by
// keepBans: waiting for the disk for each ban, a thousand of them in a row would take minutes.
func (d *daemon) bansChanged() {
	d.bans.unsaved.Store(true)
	if d.bans.Len() <= promptBans {
		d.saveState(savedSources)
		return
	}
	select {
	case d.bans.soon <- struct{}{}:
	default:
	}
}

func (d *daemon) writeBans() {
	if err := d.bans.save(); err != nil {
		d.log.Warn("the bans would not be there after a stop", "error", err)
	}
}

// followBans takes over the bans of the fleet until ctx ends.
func (d *daemon) followBans(ctx context.Context, c *etcd.Client, key string) {
	fleet.FollowBans(ctx, c, key, func(all bool, list []lists.Ban, lifted []netip.Prefix) {
		now := time.Now()
		fresh := slices.DeleteFunc(slices.Clone(list), func(b lists.Ban) bool {
			was, ok := d.bans.Find(b.Network)
			return !b.EndFlows || ok && was.At.Equal(b.At)
		})
		var changed bool
		var err error
		if all {
			changed, err = d.bans.FleetHas(now, list)
		} else {
			changed, err = d.bans.Change(now, list, slices.DeleteFunc(lifted, func(p netip.Prefix) bool {
				b, ok := d.bans.Find(p)
				return ok && !b.Fleet // which this relay has for itself
			}))
		}
		if err != nil {
			d.log.Warn("a ban of the fleet cannot be had", "error", err)
		}
		if len(fresh) > 0 {
			d.endBanned(ctx, fresh)
		}
		if changed {
			d.bansChanged()
		}
	})
}

// keepBans forgets bans that are over, and writes those that have changed, each second until the daemon closes, and then once more. It tells the
// next worker of many bans, in a fifth of the time at most.
func (d *daemon) keepBans() {
	defer d.writeBans()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	var due <-chan time.Time
	pause := soonBans
	for {
		select {
		case <-d.background.closing:
			return
		case <-d.bans.soon:
			if due == nil {
				due = time.After(pause)
			}
		case start := <-due:
			due = nil
			d.saveState(savedSources)
			pause = max(soonBans, 4*time.Since(start))
		case now := <-tick.C:
			if changed, _ := d.bans.Change(now, nil, nil); changed {
				d.bansChanged()
			}
			d.writeBans()
		}
	}
}

// endBanned ends the open flows of clients in some networks, and returns how many there were.
func (d *daemon) endBanned(ctx context.Context, list []lists.Ban) int64 {
	var ids []uint64
	err := d.Flows(ctx, func(flows []api.Flow) bool {
		for i := range flows {
			if slices.ContainsFunc(list, func(b lists.Ban) bool { f := api.Filter{Source: b.Network}; return f.Match(&flows[i]) }) {
				ids = append(ids, flows[i].ID)
			}
		}
		return true
	})
	if err != nil {
		d.log.Warn("not all flows of a banned client may have ended", "error", err)
	}
	return d.Kill(ctx, ids)
}
