package lists

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A Ban is a network that operators have banned.
type Ban struct {
	Network  netip.Prefix `json:"network"`
	At       time.Time    `json:"at"`
	Until    time.Time    `json:"until,omitzero"` // zero: until it is lifted
	By       string       `json:"by,omitempty"`
	Why      string       `json:"why,omitempty"`
	EndFlows bool         `json:"end_flows,omitempty"` // open flows were to end, too
	Fleet    bool         `json:"fleet,omitempty"`     // the whole fleet has it
}

// MaxBans bounds the bans, so that their texts fit into what is saved, however they are escaped: 16,384 of up to 3.3 KB.
const MaxBans = 1 << 14

// Check returns an error if a ban is not one.
func (b *Ban) Check() error {
	switch {
	case !b.Network.IsValid() || b.Network != b.Network.Masked() || b.Network.Addr().Is4In6() || b.Network.Addr().Zone() != "":
		return errors.New("no network")
	case b.Network.Bits() == 0:
		return fmt.Errorf("%v is everybody", b.Network)
	case len(b.By) > 255 || len(b.Why) > 255:
		return errors.New("more than 255 bytes of text")
	}
	return nil
}

func (b *Ban) over(now time.Time) bool { return !b.Until.IsZero() && !now.Before(b.Until) }

// Bans are the bans that hold. They outlive configurations. A nil *Bans has none.
type Bans struct {
	// A ban is in one of two sets. New ones are in the small one, which is made anew for each; that of all others is not: a thousand bans in a
	// second take no more time when there are many.
	set, recent atomic.Pointer[Set] // nil: none
	hits        atomic.Int64

	mu     sync.Mutex
	all    map[netip.Prefix]Ban
	latest []Entry // those of recent
}

// maxRecent is how many bans are in the small set before they are put into the other one.
const maxRecent = 256

// Contains reports whether an address, which is canonical, is banned, and counts it if it is.
func (b *Bans) Contains(a netip.Addr) bool {
	if b == nil {
		return false
	}
	if s := b.recent.Load(); s == nil || !s.Contains(a) {
		if s := b.set.Load(); s == nil || !s.Contains(a) {
			return false
		}
	}
	b.hits.Add(1)
	return true
}

// Hits returns how many clients were refused.
func (b *Bans) Hits() int64 { return b.hits.Load() }

// Change adds bans and lifts those of networks, and reports whether anything has changed. Those that cannot be added, because there are too many,
// are left out: the error says so. Without any to add or to lift, it removes those that are over.
func (b *Bans) Change(now time.Time, add []Ban, lift []netip.Prefix) (changed bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.change(now, add, lift)
}

func (b *Bans) change(now time.Time, add []Ban, lift []netip.Prefix) (changed bool, err error) {
	fewer := false
	for _, p := range lift {
		if _, ok := b.all[p]; ok {
			delete(b.all, p)
			fewer = true
		}
	}
	if len(add)+len(lift) == 0 || len(b.all)+len(add) > MaxBans {
		for p, ban := range b.all {
			if ban.over(now) {
				delete(b.all, p)
				fewer = true
			}
		}
	}
	if b.all == nil {
		b.all = map[netip.Prefix]Ban{}
	}
	for _, ban := range add {
		was, ok := b.all[ban.Network]
		switch failed := ban.Check(); {
		case failed != nil:
			err = failed
		case ban.over(now) || ok && was == ban:
		case !ok && len(b.all) >= MaxBans:
			err = fmt.Errorf("there are %d bans already", MaxBans)
		default:
			if b.all[ban.Network], changed = ban, true; !ok {
				b.latest = append(b.latest, Entry{ban.Network, 0})
			}
		}
	}
	b.publish(fewer)
	return changed || fewer, err
}

// FleetHas makes the bans of the fleet those of a list.
func (b *Bans) FleetHas(now time.Time, list []Ban) (changed bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	has := make(map[netip.Prefix]bool, len(list))
	for i := range list {
		has[list[i].Network] = true
	}
	var lift []netip.Prefix
	for p, ban := range b.all {
		if ban.Fleet && !has[p] {
			lift = append(lift, p)
		}
	}
	return b.change(now, list, lift)
}

// publish shows what has changed to those who ask; fewer says that bans are gone.
func (b *Bans) publish(fewer bool) {
	if !fewer && len(b.latest) <= maxRecent {
		b.recent.Store(NewSet(b.latest))
		return
	}
	list := make([]Entry, 0, len(b.all))
	for p := range b.all {
		list = append(list, Entry{p, 0})
	}
	b.set.Store(NewSet(list)) // first, so that no ban is in neither
	b.recent.Store(nil)
	b.latest = nil
}

// All returns the bans that hold, in the order of their networks.
func (b *Bans) All(now time.Time) []Ban {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := make([]Ban, 0, len(b.all))
	for _, ban := range b.all {
		if !ban.over(now) {
			list = append(list, ban)
		}
	}
	slices.SortFunc(list, func(x, y Ban) int {
		return cmp.Or(x.Network.Addr().Compare(y.Network.Addr()), cmp.Compare(x.Network.Bits(), y.Network.Bits()))
	})
	return list
}

// Len returns how many bans there are.
func (b *Bans) Len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.all)
}

// Find returns the ban of a network.
func (b *Bans) Find(p netip.Prefix) (Ban, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	ban, ok := b.all[p]
	return ban, ok
}
