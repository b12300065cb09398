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

// Present reports whether the relay is: without a report it is not.
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
	defer func() { // the orders go, and then their answers
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		if e := o.Client.Revoke(ctx, lease); e != nil && err == nil && !errors.Is(e, etcd.ErrNoLease) {
			err = e
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

// SetDrain orders relays to take no new flows, or with on false, to take them again. It returns those of which
// that was news.
func (o *Operator) SetDrain(ctx context.Context, nodes []string, on bool, why string) (changed []string, err error) {
	text, err := json.Marshal(&DrainOrder{By: o.By, At: time.Now(), Why: shorten(why)})
	if err != nil {
		return nil, err
	}
	for _, node := range nodes {
		key := drainKey(o.Key, node)
		// The log has what was done, also if the answer is lost.
		t := etcd.Txn{If: []etcd.Compare{etcd.Absent(key)}, Then: []etcd.Op{etcd.Put(key, text, 0), o.entryOf("drain", node, why)}}
		if !on {
			t = etcd.Txn{If: []etcd.Compare{etcd.Present(key)}, Then: []etcd.Op{etcd.Delete(key), o.entryOf("undrain", node, why)}}
		}
		r, err := o.Client.Do(ctx, t)
		if err != nil {
			r.Succeeded, err = o.lookDrain(ctx, key, text, on, err)
		}
		if err != nil {
			return changed, fmt.Errorf("%s: %w", node, err)
		}
		if r.Succeeded {
			changed = append(changed, node)
		}
	}
	sometimesTrimLog(ctx, o.Client, o.Key) // or the next one does it
	return changed, nil
}

// lookDrain finds out whether an order to drain was given, or taken back, although the request has failed.
func (o *Operator) lookDrain(ctx context.Context, key string, text []byte, on bool, failed error) (done bool, err error) {
	var answered *etcd.Error
	if errors.As(failed, &answered) {
		return false, failed
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookTimeout)
	defer cancel()
	wait := remote.Backoff{Min: 100 * time.Millisecond, Max: 2 * time.Second}
	for {
		kv, _, err := o.Client.Get(ctx, key)
		switch {
		case err == nil && on && string(kv.Value) == string(text), err == nil && !on && kv.Version == 0:
			return true, nil
		case err == nil:
			return false, failed
		}
		if wait.Wait(ctx) != nil {
			return false, fmt.Errorf("whether it was asked is not known, because etcd does not answer; penstock fleet status shows it: %w", failed)
		}
	}
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

// Lock waits for one of the places of a lock: see Acquire.
func (o *Operator) Lock(ctx context.Context, name string, places int, why string, full func([]Holder)) (*Lock, error) {
	return Acquire(ctx, LockConfig{Client: o.Client, Key: o.Key, Name: name, Places: places, Holder: Holder{By: o.By, Why: shorten(why)}, Full: full})
}

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
