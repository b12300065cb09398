package fleet

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/etcd"
	"github.com/penstock/penstock/cmd/penstock/internal/remote"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// Run shares checks until ctx ends. It asks nothing of etcd as long as there is no member.
func (c *Checks) Run(ctx context.Context, client *etcd.Client, key string) {
	var running sync.WaitGroup
	defer running.Wait()
	defer c.reset()
	for {
		c.mu.Lock()
		idle := len(c.members) == 0
		c.mu.Unlock()
		if !idle {
			break
		}
		select {
		case <-c.wake:
		case <-ctx.Done():
			return
		}
	}
	running.Go(func() {
		client.Follow(ctx, checkersPrefix(key), func(ch etcd.Change) { c.applyNodes(ch, checkersPrefix(key)) }, func(err error, _ time.Time) { c.contact(0, err) })
	})
	running.Go(func() {
		client.Follow(ctx, checksPrefix(key), func(ch etcd.Change) { c.applyResults(ch, checksPrefix(key)) }, func(err error, _ time.Time) { c.contact(1, err) })
	})
	running.Go(func() { c.writeAll(ctx, client, key) })
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		c.decideAll()
		select {
		case <-c.wake:
			remote.Sleep(ctx, 50*time.Millisecond) // others come at the same time
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// reset makes the relay check everything for itself.
func (c *Checks) reset() {
	c.mu.Lock()
	c.alone, c.away, c.listed, c.lost = true, time.Now(), [2]bool{}, [2]bool{}
	clear(c.nodes)
	clear(c.ranked)
	clear(c.results)
	c.lease, c.said, c.saidMod = 0, "", 0
	for id, m := range c.members {
		m.written, m.mod = nil, 0
		c.stale[id] = true
	}
	clear(c.write)
	c.mu.Unlock()
	c.decideAll()
}

// contact notes whether there is contact.
func (c *Checks) contact(which int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lost[which] = err != nil
	poke(c.wake)
}

// spread is the time over which relays stop to check for themselves once they have contact again.
const spread = 3 * time.Second

// decideAll works out what may have changed, and tells it.
func (c *Checks) decideAll() {
	now := time.Now()
	type update struct {
		m     *sharedMember
		share Share
	}
	var updates []update
	c.mu.Lock()
	all := c.settle(now)
	if c.scoped && now.Sub(c.rankedAt) >= rankInterval(len(c.nodes)) {
		c.scoped, all, c.rankedAt = false, true, now
		c.rank()
	}
	for id, m := range c.members {
		if !all && !c.stale[id] && m.missing.IsZero() {
			continue
		}
		had := m.share.Check
		if !c.decide(m, now) {
			continue
		}
		updates = append(updates, update{m, m.share})
		if had && !m.share.Check {
			m.own = nil
		}
	}
	clear(c.stale)
	if len(c.write) > 0 {
		poke(c.writes)
	}
	c.mu.Unlock()
	for _, u := range updates {
		u.m.Update(u.share)
	}
}

// settle works out whether this relay checks for itself, and reports whether that has changed. The caller holds the
// lock.
func (c *Checks) settle(now time.Time) bool {
	was := c.alone
	if c.lost[0] || c.lost[1] || !c.listed[0] || !c.listed[1] || c.lease == 0 {
		c.joins = time.Time{}
		if c.away.IsZero() {
			c.away = now
		}
		if !c.alone && now.Sub(c.away) > c.cfg.Grace {
			c.alone = true
			c.cfg.Tell(slog.LevelWarn, "no contact with the fleet: this relay checks all members for itself", nil)
		}
		return c.alone != was
	}
	c.away = time.Time{}
	switch {
	case !c.alone:
	case c.joins.IsZero():
		c.joins = now.Add(rand.N(spread))
	case now.After(c.joins):
		c.alone, c.joins = false, time.Time{}
		c.cfg.Tell(slog.LevelInfo, "health checks are shared with the fleet", nil)
	}
	return c.alone != was
}

// rankInterval is the least time between two looks at who checks all members: when many relays start at once, each
// of them changes something for a few members.
func rankInterval(nodes int) time.Duration {
	return min(time.Second, time.Duration(nodes)*time.Millisecond)
}

// rank lists the nodes of each scope. The caller holds the lock.
func (c *Checks) rank() {
	clear(c.ranked)
	for node, scopes := range c.nodes {
		n := rankedNode{node, hash64(node)}
		for scope := range scopes {
			if c.scopes[scope] > 0 {
				c.ranked[scope] = append(c.ranked[scope], n)
			}
		}
	}
}

// applyNodes handles changes of who checks what.
func (c *Checks) applyNodes(ch etcd.Change, prefix string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if ch.All {
		clear(c.nodes)
		c.listed[0] = true
	}
	for _, kv := range ch.KVs {
		node, ok := below(kv.Key, prefix)
		if !ok || !spec.ValidNode(node) {
			continue
		}
		if node == c.cfg.Node && kv.Mod > c.saidMod && string(kv.Value) != c.said {
			c.said = ""
			poke(c.writes)
		}
		scopes, err := ParseScopes(kv.Value)
		if err != nil {
			delete(c.nodes, node)
			continue
		}
		c.nodes[node] = map[string]bool{}
		for _, s := range scopes {
			c.nodes[node][s] = true
		}
	}
	for _, key := range ch.Deleted {
		if node, ok := below(key, prefix); ok {
			delete(c.nodes, node)
		}
		if key == prefix+c.cfg.Node && ch.Revision > c.saidMod {
			c.said = ""
			poke(c.writes)
		}
	}
	c.scoped = true
	poke(c.wake)
}

// maxResults bounds what is kept of all members and relays.
const maxResults = 1 << 20

// applyResults handles changes of what relays found.
func (c *Checks) applyResults(ch etcd.Change, prefix string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if ch.All {
		clear(c.results)
		c.listed[1], c.scoped = true, true
	}
	for _, kv := range ch.KVs {
		member, node, ok := splitResult(kv.Key, prefix)
		if !ok {
			continue
		}
		r, err := ParseResult(kv.Value)
		if err != nil {
			c.forget(member, node)
			continue
		}
		if c.results[member] == nil {
			if len(c.results) >= maxResults {
				continue
			}
			c.results[member] = map[string]Result{}
		}
		c.results[member][node] = r
		c.stale[member] = true
		switch m := c.members[member]; {
		case node != c.cfg.Node:
		case m == nil || !m.publish: // of the process before
			c.write[member] = true
			poke(c.writes)
		default:
			c.surprised(m, &r, kv.Mod)
		}
	}
	for _, key := range ch.Deleted {
		if member, node, ok := splitResult(key, prefix); ok {
			c.forget(member, node)
			if m := c.members[member]; m != nil && node == c.cfg.Node {
				c.surprised(m, nil, ch.Revision)
			}
		}
	}
	poke(c.wake)
}

func (c *Checks) forget(member, node string) {
	delete(c.results[member], node)
	if len(c.results[member]) == 0 {
		delete(c.results, member)
	}
	c.stale[member] = true
}

func splitResult(key, prefix string) (member, node string, ok bool) {
	if len(key) <= len(prefix)+idLength+1 || key[:len(prefix)] != prefix || key[len(prefix)+idLength] != '/' {
		return "", "", false
	}
	member, node = key[len(prefix):len(prefix)+idLength], key[len(prefix)+idLength+1:]
	return member, node, validID(member) && spec.ValidNode(node)
}
