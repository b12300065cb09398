package fleet

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/etcd"
)

// answerTTL is how long an answer stays, unless its order goes before: longer than any order does, so that a
// relay that is started again sees what the one before has done.
const answerTTL = 10 * time.Minute

// maxOrders bounds the orders that a relay has not carried out yet. Further ones are refused.
const maxOrders = 16

// carryTimeout bounds how long an order may take.
const carryTimeout = time.Minute

// A carrier follows the orders to one relay.
type carrier struct {
	p     *Presence
	ctx   context.Context
	queue chan etcd.KV
	mu    sync.Mutex
	mine  map[string]etcd.LeaseID // of answers, by the orders' ids
	drain *DrainOrder
	told  bool // what drain is
	ends  sync.WaitGroup
}

// followOrders carries out orders until ctx ends.
func (p *Presence) followOrders(ctx context.Context) {
	c := &carrier{p: p, ctx: ctx, queue: make(chan etcd.KV, maxOrders), mine: map[string]etcd.LeaseID{}}
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() {
		for {
			select {
			case kv := <-c.queue:
				c.carry(kv)
			case <-ctx.Done():
				return
			}
		}
	})
	defer c.ends.Wait()
	p.cfg.Client.Follow(ctx, nodeOrdersPrefix(p.cfg.Key, p.cfg.Node.ID), c.apply, nil)
}

// apply handles changes of the orders. Nothing in it may block.
func (c *carrier) apply(ch etcd.Change) {
	prefix := nodeOrdersPrefix(c.p.cfg.Key, c.p.cfg.Node.ID)
	drained, known := false, map[string]bool{}
	for _, kv := range ch.KVs {
		name, ok := below(kv.Key, prefix)
		switch {
		case ok && name == drainName:
			drained = true
			o, err := ParseDrain(kv.Value)
			if err != nil { // somebody wants it, but the order is malformed
				c.p.cfg.Tell(slog.LevelWarn, "an order to drain is invalid, and is obeyed", err)
			}
			c.setDrain(&o)
		case ok && validID(name):
			known[name] = true
			select {
			case c.queue <- kv:
			default:
				c.p.cfg.Tell(slog.LevelWarn, "too many orders at once: one was left out", nil)
			}
		}
	}
	for _, key := range ch.Deleted {
		name, _ := below(key, prefix)
		if name == drainName {
			c.setDrain(nil)
			continue
		}
		c.end(name)
	}
	if ch.All {
		if !drained {
			c.setDrain(nil)
		}
		c.mu.Lock()
		var ended []string
		for id := range c.mine {
			if !known[id] {
				ended = append(ended, id)
			}
		}
		c.mu.Unlock()
		for _, id := range ended {
			c.end(id)
		}
	}
}

func (c *carrier) setDrain(o *DrainOrder) {
	if (o == nil) == (c.drain == nil) && c.told {
		return
	}
	c.drain, c.told = o, true
	c.p.cfg.Drain(o)
	c.p.Changed()
}

// end forgets an order that is gone, and its answer.
func (c *carrier) end(id string) {
	c.mu.Lock()
	lease := c.mine[id]
	delete(c.mine, id)
	c.mu.Unlock()
	c.p.mu.Lock()
	delete(c.p.fast, id)
	c.p.mu.Unlock()
	if lease != 0 {
		c.ends.Go(func() { // as many as orders that were carried out
			ctx, cancel := context.WithTimeout(c.ctx, 5*time.Second)
			defer cancel()
			c.p.cfg.Client.Revoke(ctx, lease)
		})
	}
}

// carry carries out an order, unless that was done before. First it says that it begins: if that cannot be
// written, the order is not carried out.
func (c *carrier) carry(kv etcd.KV) {
	cfg := &c.p.cfg
	id, _ := below(kv.Key, nodeOrdersPrefix(cfg.Key, cfg.Node.ID))
	ctx, cancel := context.WithTimeout(c.ctx, carryTimeout)
	defer cancel()
	c.mu.Lock()
	_, done := c.mine[id]
	c.mu.Unlock()
	if done || kv.Lease == 0 { // an order without a lease would stay for ever
		return
	}
	lease, err := cfg.Client.Grant(ctx, answerTTL)
	if err != nil {
		cfg.Tell(slog.LevelWarn, "an order was not carried out", err)
		return
	}
	c.mu.Lock()
	c.mine[id] = lease // before the order may end: see end
	c.mu.Unlock()
	key := answerKey(cfg.Key, id, cfg.Node.ID)
	r, err := cfg.Client.Do(ctx, etcd.Txn{
		If:   []etcd.Compare{etcd.Absent(key), etcd.CreateIs(kv.Key, kv.Create)},
		Then: []etcd.Op{etcd.Put(key, c.text(id, Answer{State: "begun"}), lease)},
	})
	if err != nil || !r.Succeeded {
		c.mu.Lock()
		delete(c.mine, id)
		c.mu.Unlock()
		cfg.Client.Revoke(ctx, lease)
		if err != nil {
			cfg.Tell(slog.LevelWarn, "an order was not carried out", err)
		}
		return
	}
	o, err := ParseOrder(kv.Value)
	a := Answer{State: "refused"}
	switch {
	case err != nil:
		a.Error = err.Error()
	case o.Kind == OrderReport:
		c.reportEvery(id, time.Duration(max(1, o.Every))*time.Second)
		c.p.Changed()
		a.State = "done"
	default:
		o.ID = id
		a = cfg.Carry(ctx, o)
	}
	if _, err := cfg.Client.Put(ctx, key, c.text(id, a), lease); err != nil {
		cfg.Tell(slog.LevelWarn, "the answer to an order could not be written", err)
	}
}

// reportEvery has the relay report more often, unless the order has ended meanwhile.
func (c *carrier) reportEvery(id string, d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.mine[id]; ok {
		c.p.mu.Lock()
		c.p.fast[id] = d
		c.p.mu.Unlock()
	}
}

func (c *carrier) text(id string, a Answer) []byte {
	a.Order, a.Node, a.At = id, c.p.cfg.Node.ID, time.Now()
	a.Error = shorten(a.Error)
	b, err := json.Marshal(&a)
	if err != nil { // strings and numbers
		panic(err)
	}
	return b
}
