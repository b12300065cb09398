package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/penstock/penstock/cmd/penstock/internal/etcd"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

const (
	// maxSplitChanges bounds the changes of a route: those that are overtaken by the configuration go when others come.
	maxSplitChanges = 8
	maxSplits       = 1 << 20
)

// Changes of weights are keys of routes: KEY/splits/LISTENER/ROUTE.

func splitsPrefix(key string) string { return key + "/splits/" }

func splitsKey(key, listener, route string) string { return splitsPrefix(key) + listener + "/" + route }

// routeOfSplits returns the route of a key.
func routeOfSplits(key, prefix string) (listener, route string, ok bool) {
	name, ok := strings.CutPrefix(key, prefix)
	listener, route, slash := strings.Cut(name, "/")
	return listener, route, ok && slash && listener != "" && route != "" && !strings.Contains(route, "/") && utf8.ValidString(name)
}

// ParseSplits parses the changes of a route.
func ParseSplits(value []byte) ([]spec.SplitChange, error) {
	if len(value) > maxSplits {
		return nil, fmt.Errorf("%d bytes; allowed: up to %d", len(value), maxSplits)
	}
	var list []spec.SplitChange
	if err := json.Unmarshal(value, &list); err != nil {
		return nil, err
	}
	if len(list) > maxSplitChanges {
		return nil, fmt.Errorf("%d changes; allowed: up to %d", len(list), maxSplitChanges)
	}
	for i := range list {
		if list[i].By = shorten(list[i].By); !list[i].Valid() {
			return nil, errors.New("weights that no operator can have chosen")
		}
	}
	return list, nil
}

// SetSplit changes the weights of a route's parts on all relays that have the same weights in their configurations, and returns all changes of the
// route. choose makes the change of what the fleet has, which may be newer than what this relay knows; nil: it cannot be read. It is called again
// if that has changed meanwhile. With the weights of the configuration, the change is undone. text says for the fleet's log what was done.
func (o *Operator) SetSplit(ctx context.Context, listener, route string, choose func(now *spec.RouteSplits) (change spec.SplitChange, text string, err error)) (spec.RouteSplits, error) {
	r := spec.RouteSplits{Listener: listener, Route: route}
	key := splitsKey(o.Key, listener, route)
	for range drainAttempts {
		now, _, err := o.Client.Get(ctx, key)
		if err != nil {
			return r, err
		}
		r.Changes = nil
		known := &r
		if now.Mod > 0 {
			if r.Changes, err = ParseSplits(now.Value); err != nil {
				known = nil // and gives way
			}
		}
		change, text, err := choose(known)
		if err != nil {
			return r, err
		}
		r.Changes = slices.DeleteFunc(r.Changes, func(c spec.SplitChange) bool { return maps.Equal(c.File, change.File) })
		if !maps.Equal(change.File, change.Weights) {
			r.Changes = slices.Insert(r.Changes, 0, change)
		}
		r.Changes = r.Changes[:min(len(r.Changes), maxSplitChanges)]
		op := etcd.Delete(key)
		if len(r.Changes) > 0 {
			op = etcd.Put(key, encode(r.Changes), 0)
		}
		done, err := o.Client.Do(ctx, etcd.Txn{If: []etcd.Compare{etcd.ModIs(key, now.Mod)}, Then: []etcd.Op{op, o.entryOf("split", listener+"/"+route, text)}})
		if err != nil {
			return r, err
		}
		if done.Succeeded {
			r.Revision = done.Revision
			sometimesTrimLog(ctx, o.Client, o.Key) // or the next one does it
			return r, nil
		}
	}
	return r, errors.New("others change it all the time")
}

// A SplitsChange is what has changed of the weights of a fleet.
type SplitsChange struct {
	All     bool // Changed is all that there is
	Changed []spec.RouteSplits
	Undone  []spec.RouteSplits // without changes
	Broken  []BrokenSplits     // change nothing
}

// BrokenSplits is a key whose value cannot be read.
type BrokenSplits struct {
	Listener, Route string
	Err             error
}

// FollowSplits tells the changes of weights of a fleet until ctx ends. Keys that are of no route are left out.
func FollowSplits(ctx context.Context, c *etcd.Client, key string, tell func(SplitsChange)) {
	prefix := splitsPrefix(key)
	c.Follow(ctx, prefix, func(ch etcd.Change) {
		told := SplitsChange{All: ch.All}
		for _, kv := range ch.KVs {
			listener, route, ok := routeOfSplits(kv.Key, prefix)
			list, err := ParseSplits(kv.Value)
			switch {
			case ok && err == nil:
				told.Changed = append(told.Changed, spec.RouteSplits{Listener: listener, Route: route, Revision: kv.Mod, Changes: list})
			case ok:
				told.Broken = append(told.Broken, BrokenSplits{listener, route, err})
			}
		}
		for _, k := range ch.Deleted {
			if listener, route, ok := routeOfSplits(k, prefix); ok {
				told.Undone = append(told.Undone, spec.RouteSplits{Listener: listener, Route: route, Revision: ch.Revision})
			}
		}
		tell(told)
	}, nil)
}
