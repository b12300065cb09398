package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/etcd"
	"github.com/penstock/penstock/cmd/penstock/internal/remote"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// An Operator looks at a fleet and gives orders to it.
type Operator struct {
	Client *etcd.Client
	Key    string // of the fleet
	By     string // who it is, for the log
}

// A Node is a relay as an operator sees it.
type Node struct {
	Report
	Drain     *DrainOrder `json:"drain,omitempty"`     // it shall take no new flows
	Conflicts int         `json:"conflicts,omitempty"` // further relays that have the same id, and do not report
	Error     string      `json:"error,omitempty"`     // its report cannot be read
}

// Nodes returns all relays that are present, and those that are not but have an order to drain, by id; those have
// no report.
func (o *Operator) Nodes(ctx context.Context) ([]Node, error) {
	nodes := map[string]*Node{}
	at := func(id string) *Node {
		if nodes[id] == nil {
			nodes[id] = &Node{Report: Report{Node: id}}
		}
		return nodes[id]
	}
	kvs, _, err := o.Client.Prefix(ctx, nodesPrefix(o.Key))
	if err != nil {
		return nil, err
	}
	for _, kv := range kvs {
		id, ok := below(kv.Key, nodesPrefix(o.Key))
		if !ok || !spec.ValidNode(id) {
			continue
		}
		r, err := ParseReport(kv.Value)
		n := at(id)
		n.Report, n.Report.Node = r, id
		if err != nil {
			n.Error = shorten(err.Error())
		}
	}
	if kvs, _, err = o.Client.Prefix(ctx, ordersPrefix(o.Key)); err != nil {
		return nil, err
	}
	for _, kv := range kvs {
		rest := kv.Key[len(ordersPrefix(o.Key)):]
		for i := range rest {
			if rest[i] == '/' && rest[i+1:] == drainName && spec.ValidNode(rest[:i]) {
				d, _ := ParseDrain(kv.Value)
				at(rest[:i]).Drain = &d
				break
			}
		}
	}
	if kvs, _, err = o.Client.Prefix(ctx, conflictsPrefix(o.Key)); err != nil {
		return nil, err
	}
	for _, kv := range kvs {
		rest := kv.Key[len(conflictsPrefix(o.Key)):]
		for i := range rest {
			if rest[i] == '/' && spec.ValidNode(rest[:i]) {
				at(rest[:i]).Conflicts++
				break
			}
		}
	}
	list := make([]Node, 0, len(nodes))
	for _, id := range slices.Sorted(maps.Keys(nodes)) {
		list = append(list, *nodes[id])
	}
	return list, nil
}

// Present reports whether the relay has sent a report.
func (n *Node) Present() bool { return !n.At.IsZero() || n.Error != "" }

// Healthy reports whether the relay takes flows and has the configuration that it should have.
func (n *Node) Healthy() bool {
	return n.Present() && n.Error == "" && n.State == "ready" && n.Refused == nil && n.Drain == nil
}

// Ask gives an order to relays, and waits for their answers until all have come or ctx ends. each, if it is not
// nil, is called with each answer that says something final. It returns who has not answered.
func (o *Operator) Ask(ctx context.Context, nodes []string, order Order, each func(Answer)) (silent []string, err error) {
	order.ID, order.By, order.At = newID(), o.By, time.Now()
	text, err := json.Marshal(&order)
	if err != nil {
		return nil, err
	}
	ttl := time.Minute
	if end, ok := ctx.Deadline(); ok {
		ttl = min(5*time.Minute, max(5*time.Second, time.Until(end)+5*time.Second))
	}
	lease, err := o.Client.Grant(ctx, ttl)
	if err != nil {
		return nil, err
	}
	defer func() { // the orders go, and then their answers; one that was not written yet no longer can be
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		switch e := o.Client.Revoke(ctx, lease); {
		case e == nil, errors.Is(e, etcd.ErrNoLease):
		case err == nil:
			err = e
		default:
			err = fmt.Errorf("%w; relays may still carry the order out, for at most %v", err, ttl.Round(time.Second))
		}
	}()
	if err := o.give(ctx, nodes, order.ID, text, lease); err != nil {
		return nil, err
	}
	missing := make(map[string]bool, len(nodes))
	for _, n := range nodes {
		missing[n] = true
	}
	wait, cancel := context.WithCancel(ctx)
	defer cancel()
	prefix := answersPrefix(o.Key, order.ID)
	if len(missing) == 0 {
		return nil, nil
	}
	o.Client.Follow(wait, prefix, func(ch etcd.Change) {
		for _, kv := range ch.KVs {
			node, ok := below(kv.Key, prefix)
			if !ok || !missing[node] {
				continue
			}
			a, err := ParseAnswer(kv.Value)
			if err != nil {
				a = Answer{State: "failed", Error: "the answer cannot be read: " + err.Error()}
			}
			if a.Node = node; !a.Final() {
				continue
			}
			delete(missing, node)
			if each != nil {
				each(a)
			}
		}
		if len(missing) == 0 {
			cancel()
		}
	}, nil)
	return slices.Sorted(maps.Keys(missing)), nil
}

// give writes an order to relays.
func (o *Operator) give(ctx context.Context, nodes []string, id string, text []byte, lease etcd.LeaseID) error {
	for part := range slices.Chunk(nodes, maxOps) {
		var ops []etcd.Op
		for _, node := range part {
			ops = append(ops, etcd.Put(nodeOrdersPrefix(o.Key, node)+id, text, lease))
		}
		if _, err := o.Client.Do(ctx, etcd.Txn{Then: ops}); err != nil {
			return err
		}
	}
	return nil
}

// Hold gives an order to relays that holds until ctx ends, and keeps it alive. If this process dies, the order ends
// soon.
func (o *Operator) Hold(ctx context.Context, nodes []string, order Order) error {
	order.ID, order.By, order.At = newID(), o.By, time.Now()
	text, err := json.Marshal(&order)
	if err != nil {
		return err
	}
	lease, err := o.Client.Grant(ctx, defaultTTL)
	if err != nil {
		remote.Sleep(ctx, time.Second)
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		o.Client.Revoke(ctx, lease)
	}()
	err = o.give(ctx, nodes, order.ID, text, lease)
	for err == nil || !errors.Is(err, etcd.ErrNoLease) {
		if remote.Sleep(ctx, defaultTTL/4) != nil {
			return ctx.Err()
		}
		_, err = o.Client.KeepAlive(ctx, lease)
	}
	return err
}

// Log adds an entry to the fleet's log.
func (o *Operator) Log(ctx context.Context, what, to, text string) error {
	return Log(ctx, o.Client, o.Key, Entry{By: o.By, What: what, To: to, Text: text})
}

// Await looks at the relays every second until done returns true or an error, or ctx ends.
func (o *Operator) Await(ctx context.Context, done func([]Node) (bool, error)) error {
	for {
		nodes, err := o.Nodes(ctx)
		if err == nil {
			var ok bool
			if ok, err = done(nodes); ok || err != nil {
				return err
			}
		} else if ctx.Err() != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Second):
		}
	}
}

// Open returns the operator of a fleet. The caller must close it.
func Open(r spec.Registry, key, by string) (*Operator, error) {
	c, err := etcd.New(etcd.Config{Remote: remote.Of(r)})
	if err != nil {
		return nil, err
	}
	return &Operator{c, key, by}, nil
}

// Close closes the connections.
func (o *Operator) Close() { o.Client.Close() }

// ReadLog returns the last entries of the fleet's log, the latest first; most below 0: all.
func (o *Operator) ReadLog(ctx context.Context, most int) ([]Entry, error) {
	return ReadLog(ctx, o.Client, o.Key, most)
}

// Watch calls update with all reports, and then whenever there are others, until ctx ends. broken is called when
// there is no contact, and with nil when there is again.
func (o *Operator) Watch(ctx context.Context, update func([]Node), broken func(error)) {
	prefix := nodesPrefix(o.Key)
	nodes := map[string]Node{}
	o.Client.Follow(ctx, prefix, func(ch etcd.Change) {
		if ch.All {
			clear(nodes)
		}
		for _, kv := range ch.KVs {
			if id, ok := below(kv.Key, prefix); ok && spec.ValidNode(id) {
				r, err := ParseReport(kv.Value)
				n := Node{Report: r}
				n.Node = id
				if err != nil {
					n.Error = shorten(err.Error())
				}
				nodes[id] = n
			}
		}
		for _, key := range ch.Deleted {
			id, _ := below(key, prefix)
			delete(nodes, id)
		}
		list := make([]Node, 0, len(nodes))
		for _, id := range slices.Sorted(maps.Keys(nodes)) {
			list = append(list, nodes[id])
		}
		update(list)
	}, func(err error, _ time.Time) { broken(err) })
}
