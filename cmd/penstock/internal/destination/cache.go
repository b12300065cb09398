package destination

import (
	"container/list"
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// LookupFunc returns the addresses of a name, in the order in which they are tried, and how long that holds.
type LookupFunc func(ctx context.Context, name string) (addrs []netip.Addr, ttl time.Duration, err error)

// DefaultLimits are the limits of the zero value, key by key.
var DefaultLimits = spec.NameLimits{Names: 8192, Failures: 2048, MinAge: time.Second, MaxAge: time.Hour, Lookups: 64, Queue: 1024, PerSource: 32, Timeout: 10 * time.Second}

const (
	defaultTTL  = 30 * time.Second // of an answer that does not say how long it holds, such as one of /etc/hosts
	notFoundTTL = 5 * time.Second  // of a name that does not exist, or has no address
	failureTTL  = time.Second      // of a resolver that fails
	maxAddrs    = 32               // of one name that are kept
)

// An Answer is what is known of a name.
type Answer struct {
	Addrs []netip.Addr // must not be changed
	Err   error        // nil if there are any
}

// Status says whether there is an answer.
type Status uint8

// The statuses.
const (
	Known   Status = iota // there is
	Pending               // there will be: Resume is called
	Limited               // too many names are looked up for this source, or for all
)

// A Resumer is told that a flow may go on. Resume is called at most once for each Ask, and does nothing if the flow has ended.
type Resumer interface{ Resume() }

// A Wait is one flow that waits for an answer. The zero value is ready, and must not be moved in memory while the flow waits.
type Wait struct {
	name   *name // nil: it does not wait
	place  *list.Element
	resume Resumer
	answer *Answer // guarded by the cache's lock
}

// A Cache looks names up, once for all flows that want one at the same time, and keeps the answers. Its methods are safe for concurrent
// use and do not block.
type Cache struct {
	lookup LookupFunc
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu       sync.Mutex
	limits   spec.NameLimits
	closed   bool
	names    map[string]*name
	good     list.List // of *name with addresses, the one last asked for first
	bad      list.List // of *name without
	running  int
	queue    list.List            // of *name that wait to be looked up, in their order
	bySource map[netip.Prefix]int // names that are looked up or queued
	flows    int64                // that wait
	totals   totals
}

// A name is what is known of one name. The cache's lock guards it.
type name struct {
	text    string
	answer  *Answer // nil: none yet
	expires time.Time
	place   *list.Element // in good or bad; nil: it is being looked up for the first time
	kept    *list.List    // good or bad
	pending bool          // it is looked up, or queued for that
	queued  *list.Element // in queue; nil: it is not
	source  netip.Prefix  // for which it is
	waits   list.List     // of *Wait
}

// Counts are what a cache has done, and has now.
type Counts struct {
	Found, NotFound, Failed int64 // lookups that have ended, by what they have found
	Hits                    int64 // flows for which there was an answer
	Waits                   int64 // flows that have waited for one
	Limited                 int64 // flows that were refused because of a limit
	Evicted                 int64 // answers that were dropped to make room, before they had expired

	Names, Failures, Lookups, Queued, Flows int64 // at the moment; Flows wait for an answer
}

// totals are those of Counts that only grow. They may outlive the process.
type totals struct{ found, notFound, failed, hits, waits, limited, evicted *atomic.Int64 }

func totalsOf(word func(name string) *atomic.Int64) totals {
	if word == nil {
		word = func(string) *atomic.Int64 { return new(atomic.Int64) }
	}
	return totals{word("names.found"), word("names.not-found"), word("names.failed"), word("names.hits"), word("names.waits"), word("names.limited"), word("names.evicted")}
}

// NewCache returns a cache that looks up with lookup. word returns where a number is counted; nil: it ends with the cache. The caller must
// close it.
func NewCache(lookup LookupFunc, limits spec.NameLimits, word func(name string) *atomic.Int64) *Cache {
	c := &Cache{lookup: lookup, names: map[string]*name{}, bySource: map[netip.Prefix]int{}, totals: totalsOf(word)}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.SetLimits(limits)
	return c
}

// SetLimits changes the limits. What is kept beyond them is dropped, and none is kept for longer than MaxAge from now; what is looked up, or waits for that, stays.
func (c *Cache) SetLimits(limits spec.NameLimits) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if limits == (spec.NameLimits{}) {
		limits = DefaultLimits
	}
	c.limits = limits
	latest := time.Now().Add(limits.MaxAge)
	for e := c.good.Front(); e != nil; e = e.Next() {
		if n := e.Value.(*name); n.expires.After(latest) {
			n.expires = latest
		}
	}
	c.trim(&c.good, limits.Names)
	c.trim(&c.bad, limits.Failures)
	c.beginQueued()
}

// Close ends all lookups, and waits for them. Nobody is resumed.
func (c *Cache) Close() {
	c.mu.Lock()
	c.closed = true
	c.cancel()
	c.mu.Unlock()
	c.wg.Wait()
}

// Counts returns what the cache has done, and has now.
func (c *Cache) Counts() Counts {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := &c.totals
	return Counts{
		Found: t.found.Load(), NotFound: t.notFound.Load(), Failed: t.failed.Load(), Hits: t.hits.Load(), Waits: t.waits.Load(), Limited: t.limited.Load(), Evicted: t.evicted.Load(),
		Names: int64(c.good.Len()), Failures: int64(c.bad.Len()), Lookups: int64(c.running), Queued: int64(c.queue.Len()), Flows: c.flows,
	}
}

// Ask returns the answer for a name that Normalize has returned, if it is known. If not, the name is looked up for the source, unless it
// is already, and w waits until resume is told, or Leave is called. If w waits already, it goes on. With a nil w nobody waits.
func (c *Cache) Ask(text string, source netip.Addr, w *Wait, resume Resumer) (Answer, Status) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if w != nil && w.name != nil {
		return Answer{}, Pending
	}
	n := c.names[text]
	if n != nil && n.answer != nil && time.Now().Before(n.expires) {
		c.totals.hits.Add(1)
		n.kept.MoveToFront(n.place)
		return *n.answer, Known
	}
	if n == nil || !n.pending {
		from := sourceOf(source)
		if c.closed || c.bySource[from] >= c.limits.PerSource || c.running >= c.limits.Lookups && c.queue.Len() >= c.limits.Queue {
			c.totals.limited.Add(1)
			return Answer{}, Limited
		}
		if n == nil {
			n = &name{text: text}
			c.names[text] = n
		}
		n.pending, n.source = true, from
		c.bySource[from]++
		if c.running < c.limits.Lookups {
			c.begin(n)
		} else {
			n.queued = c.queue.PushBack(n)
		}
	}
	if w != nil {
		c.totals.waits.Add(1)
		c.flows++
		w.name, w.resume, w.answer = n, resume, nil
		w.place = n.waits.PushBack(w)
	}
	return Answer{}, Pending
}

// Answer returns what was found for a flow that was resumed, and reports whether there is anything: it may have been resumed by others.
func (c *Cache) Answer(w *Wait) (Answer, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if w.answer == nil {
		return Answer{}, false
	}
	a := *w.answer
	w.answer = nil
	return a, true
}

// Leave ends the wait of a flow, if it waits. A lookup goes on for others, and for the cache. One that has not begun, and for which nobody
// waits any more, never will: behind a resolver that is slower than names come, all lookups would be of names whose flows have given up.
func (c *Cache) Leave(w *Wait) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := w.name
	if n == nil {
		return
	}
	n.waits.Remove(w.place)
	w.name, w.place, w.resume = nil, nil, nil
	c.flows--
	if n.queued == nil || n.waits.Len() > 0 {
		return
	}
	c.queue.Remove(n.queued)
	n.queued = nil
	c.settled(n)
	if n.place == nil {
		delete(c.names, n.text)
	}
}

// settled notes that a name is neither looked up nor queued any more. The caller holds the lock.
func (c *Cache) settled(n *name) {
	n.pending = false
	if c.bySource[n.source]--; c.bySource[n.source] == 0 {
		delete(c.bySource, n.source)
	}
}

// sourceOf returns what counts as one source.
func sourceOf(a netip.Addr) netip.Prefix {
	a = a.Unmap().WithZone("")
	bits := a.BitLen()
	if a.Is6() {
		bits = 64
	}
	p, _ := a.Prefix(bits)
	return p
}

// begin looks a name up. The caller holds the lock.
func (c *Cache) begin(n *name) {
	c.running++
	timeout := c.limits.Timeout
	c.wg.Go(func() {
		ctx, cancel := context.WithTimeout(c.ctx, timeout)
		defer cancel()
		addrs, ttl, err := c.lookup(ctx, n.text)
		c.end(n, addrs, ttl, err)
	})
}

// end notes what was found, and resumes who has waited for it.
func (c *Cache) end(n *name, addrs []netip.Addr, ttl time.Duration, err error) {
	c.mu.Lock()
	c.running--
	c.settled(n)
	if c.closed {
		c.mu.Unlock()
		return
	}
	var dns *net.DNSError
	switch {
	case err == nil && len(addrs) > 0:
		c.totals.found.Add(1)
		if ttl == 1<<63-1 {
			ttl = defaultTTL
		}
		ttl = max(min(ttl, c.limits.MaxAge), c.limits.MinAge)
	case err == nil, errors.As(err, &dns) && dns.IsNotFound:
		c.totals.notFound.Add(1)
		ttl, addrs = notFoundTTL, nil
		if err == nil {
			err = errNoAddress
		}
	default:
		c.totals.failed.Add(1)
		ttl, addrs = failureTTL, nil
	}
	n.answer = &Answer{addrs[:min(len(addrs), maxAddrs)], err}
	n.expires = time.Now().Add(ttl)
	c.keep(n)
	var all []Resumer
	for e := n.waits.Front(); e != nil; e = n.waits.Front() {
		w := e.Value.(*Wait)
		n.waits.Remove(e)
		all = append(all, w.resume)
		w.answer, w.name, w.place, w.resume = n.answer, nil, nil, nil
		c.flows--
	}
	c.beginQueued()
	c.mu.Unlock()
	for _, r := range all {
		r.Resume()
	}
}

// beginQueued looks up as many names as may be. The caller holds the lock.
func (c *Cache) beginQueued() {
	for c.running < c.limits.Lookups && c.queue.Len() > 0 && !c.closed {
		n := c.queue.Remove(c.queue.Front()).(*name)
		n.queued = nil
		c.begin(n)
	}
}

var errNoAddress = errors.New("the name has no address")

// keep puts a name among those with an answer, of which the ones asked for longest ago make room. The caller holds the lock.
func (c *Cache) keep(n *name) {
	if n.place != nil {
		n.kept.Remove(n.place)
	}
	most := c.limits.Names
	if n.kept = &c.good; n.answer.Err != nil {
		n.kept, most = &c.bad, c.limits.Failures
	}
	n.place = n.kept.PushFront(n)
	c.trim(n.kept, most)
}

// trim drops the answers that were asked for longest ago, until there are no more than most. The caller holds the lock.
func (c *Cache) trim(kept *list.List, most int) {
	for e := kept.Back(); kept.Len() > most; e = kept.Back() {
		old := e.Value.(*name)
		kept.Remove(e)
		old.place, old.kept = nil, nil
		if time.Now().Before(old.expires) {
			c.totals.evicted.Add(1)
		}
		if old.pending {
			old.answer = nil // it is in names until it is looked up again
			continue
		}
		delete(c.names, old.text)
	}
}
