package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/etcd"
)

// drainsChange is at KEY/drains: the last change of orders to drain. Each change compares the key and writes it, so that
// what was counted before still holds when the change is made, and a change that got no answer is found again.
type drainsChange struct {
	ID string    `json:"id"`
	By string    `json:"by"`
	At time.Time `json:"at"`
}

// maxDrains is the maximum number of orders to drain in one transaction: each has an entry of the log, and there is
// KEY/drains.
const maxDrains = maxOps/2 - 1

// drainAttempts bounds how often SetDrain begins anew because somebody else was faster.
const drainAttempts = 20

// SetDrain orders relays to take no new flows, or with on false, to take them again. It returns those of which
// that was news. may, if it is not nil, is given all relays and returns why nothing may be done: what it has counted
// holds when the orders are given.
func (o *Operator) SetDrain(ctx context.Context, nodes []string, on bool, why string, may func([]Node) error) (changed []string, err error) {
	for range drainAttempts {
		now, _, err := o.Client.Get(ctx, drainsKey(o.Key))
		if err != nil {
			return changed, err
		}
		all, err := o.Nodes(ctx)
		if err == nil && may != nil {
			err = may(all)
		}
		if err != nil {
			return changed, err
		}
		todo := slices.DeleteFunc(slices.Clone(nodes), func(name string) bool {
			return slices.ContainsFunc(all, func(n Node) bool { return n.Node == name && n.Drain != nil }) == on
		})
		done, err := o.writeDrains(ctx, now.Mod, todo, on, why)
		changed = append(changed, done...)
		if err == nil {
			sometimesTrimLog(ctx, o.Client, o.Key) // or the next one does it
		}
		if !errors.Is(err, errDrainsChanged) {
			return changed, err
		}
	}
	return changed, errDrainsChanged
}

var errDrainsChanged = errors.New("others give orders to drain all the time")

// writeDrains writes the orders or removes them, if KEY/drains is still as it was at a revision. It returns those of
// which that was done. The error is errDrainsChanged if somebody else has changed one.
func (o *Operator) writeDrains(ctx context.Context, mod int64, nodes []string, on bool, why string) (done []string, err error) {
	text, err := json.Marshal(&DrainOrder{By: o.By, At: time.Now(), Why: shorten(why)})
	if err != nil {
		return nil, err
	}
	for part := range slices.Chunk(nodes, maxDrains) {
		change := encode(&drainsChange{newID(), shorten(o.By), time.Now()})
		ops := []etcd.Op{etcd.Put(drainsKey(o.Key), change, 0)}
		for _, node := range part {
			if on {
				ops = append(ops, etcd.Put(drainKey(o.Key, node), text, 0), o.entryOf("drain", node, why))
			} else {
				ops = append(ops, etcd.Delete(drainKey(o.Key, node)), o.entryOf("undrain", node, why))
			}
		}
		counted := []etcd.Compare{etcd.ModIs(drainsKey(o.Key), mod)}
		r, failed := o.Client.Do(ctx, etcd.Txn{If: counted, Then: ops})
		ok := failed == nil && r.Succeeded
		mod = r.Revision
		if unanswered(failed) {
			none := encode(&drainsChange{newID(), shorten(o.By), time.Now()})
			r, err := o.settle(ctx, etcd.Txn{If: counted, Then: []etcd.Op{etcd.Put(drainsKey(o.Key), none, 0)}, Else: []etcd.Op{etcd.Get(drainsKey(o.Key))}})
			switch {
			case err != nil:
				return done, &unknownError{"it was done", "penstock fleet status", failed}
			case !r.Succeeded && len(r.Answers[0].KVs) == 1:
				kv := r.Answers[0].KVs[0]
				ok, mod, failed = string(kv.Value) == string(change), kv.Mod, nil
			}
		}
		switch {
		case failed != nil:
			return done, fmt.Errorf("nothing was changed for %d of %d relays: %w", len(nodes)-len(done), len(nodes), failed)
		case !ok:
			return done, errDrainsChanged
		}
		done = append(done, part...)
	}
	return done, nil
}
