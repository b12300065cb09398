package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/etcd"
	"github.com/penstock/penstock/cmd/penstock/internal/remote"
)

// maxOps is the maximum number of operations of one transaction; etcd's default is 128.
const maxOps = 100

// writeAll writes which checks this relay takes part in, and what it found, until ctx ends. A write that got no answer
// is made again, and may also be done later, over a newer one: who follows the keys notices that and has it written
// again (see surprised).
func (c *Checks) writeAll(ctx context.Context, client *etcd.Client, key string) {
	wait := remote.Backoff{}
	var of etcd.LeaseID
	for {
		c.mu.Lock()
		lease, said := c.lease, c.said
		list := make([]string, 0, len(c.scopes))
		for s := range c.scopes {
			list = append(list, s)
		}
		c.mu.Unlock()
		slices.Sort(list)
		text, err := json.Marshal(list)
		if err == nil && lease != 0 && (string(text) != said || lease != of) {
			var mod int64
			if mod, err = client.Put(ctx, checkersPrefix(key)+c.cfg.Node, text, lease); err == nil {
				of = lease
				c.mu.Lock()
				c.said, c.saidMod = string(text), mod
				c.mu.Unlock()
			}
		}
		if err == nil && lease != 0 {
			err = c.writeResults(ctx, client, checksPrefix(key), lease)
		}
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			wait.Wait(ctx)
			continue
		}
		wait.Working()
		select {
		case <-c.writes:
			remote.Sleep(ctx, 50*time.Millisecond) // others come at the same time
		case <-ctx.Done():
		}
	}
}

// writeResults writes what has changed.
func (c *Checks) writeResults(ctx context.Context, client *etcd.Client, prefix string, lease etcd.LeaseID) error {
	for {
		var ops []etcd.Op
		var done []string
		now := map[string]*Result{}
		c.mu.Lock()
		for id := range c.write {
			if len(ops) == maxOps {
				break
			}
			delete(c.write, id)
			m := c.members[id]
			at := prefix + id + "/" + c.cfg.Node
			if m == nil || m.own == nil || !m.publish {
				if _, there := c.results[id][c.cfg.Node]; !there && (m == nil || m.written == nil) {
					continue
				}
				done, ops = append(done, id), append(ops, etcd.Delete(at))
				continue
			}
			r := *m.own
			text, err := json.Marshal(&r)
			if err != nil {
				continue
			}
			now[id] = &r
			done, ops = append(done, id), append(ops, etcd.Put(at, text, lease))
		}
		c.mu.Unlock()
		if len(ops) == 0 {
			return nil
		}
		r, err := client.Do(ctx, etcd.Txn{Then: ops})
		c.mu.Lock()
		for _, id := range done {
			m := c.members[id]
			switch {
			case err != nil:
				c.write[id] = true
			case m != nil:
				m.mod = r.Revision
				if m.written = now[id]; m.own != nil && m.written != nil && m.own.Up != m.written.Up {
					c.write[id] = true
				}
			}
		}
		c.mu.Unlock()
		if err != nil {
			return err
		}
	}
}

// surprised makes sure that a member's result is written again if etcd has another one than this relay has found, although it was
// written later: at a revision. found is nil if there is none. The caller holds the lock.
func (c *Checks) surprised(m *sharedMember, found *Result, revision int64) {
	if revision <= m.mod || !m.publish || m.own == nil || found != nil && found.Up == m.own.Up {
		return
	}
	c.write[m.id] = true
	poke(c.writes)
}

// maxScopes bounds the groups of a relay whose checks are shared.
const maxScopes = 2000

// ParseScopes reads which checks a relay takes part in.
func ParseScopes(text []byte) ([]string, error) {
	var list []string
	if len(text) > maxScopes*(idLength+4) {
		return nil, fmt.Errorf("checks of %d bytes", len(text))
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, err
	}
	for _, s := range list {
		if !validID(s) {
			return nil, fmt.Errorf("invalid check %q", shorten(s))
		}
	}
	return list, nil
}

// ParseResult reads what a relay found of a member.
func ParseResult(text []byte) (Result, error) {
	var r Result
	if len(text) > maxOrder {
		return r, fmt.Errorf("a result of %d bytes; allowed: %d", len(text), maxOrder)
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return Result{}, err
	}
	r.Why = shorten(r.Why)
	return r, nil
}

// Count returns how many members are shared, and how many of them this relay checks.
func (c *Checks) Count() (shared, checked int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range c.members {
		if m.share.Check {
			checked++
		}
	}
	return len(c.members), checked
}
