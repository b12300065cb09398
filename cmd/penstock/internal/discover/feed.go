package discover

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/cmd/penstock/internal/upstream"
)

// The bounds of a feed.
const (
	defaultInterval   = 100 * time.Millisecond
	intervalPerMember = 10 * time.Microsecond
	heartbeat         = 30 * time.Second // an unchanged list is confirmed this often while there is contact
	maxMembers        = 1 << 16
	maxProblem        = 500
)

// A feed lies between a source, which changes members one by one, and the group, which gets complete lists. Members
// have keys, by which the lists are sorted. A change costs nothing but itself; a list is made in one pass over the
// last one, which stays as it is.
type feed struct {
	what     spec.Discover
	interval time.Duration

	mu      sync.Mutex
	wake    chan struct{}      // has an element if there is something to pass on
	members []member           // as of the last list, sorted by key
	changes map[string]*target // since then; nil: removed
	all     bool               // changes are the complete list
	listed  bool               // there has been a complete list
	contact bool
	err     error
	wrong   map[string]string // problems of members that are left out, by key
	leftOut complaints
}

type target = upstream.Target

type member struct {
	key string
	*target
}

func newFeed(opt Options, what spec.Discover) *feed {
	return &feed{what: what, interval: opt.Interval, leftOut: complaints{tell: opt.LeftOut}, wake: make(chan struct{}, 1)}
}

// errTooMany is returned for a registry that has so many members, or wrong values, that they are not kept.
var errTooMany = fmt.Errorf("there are far more than %d members", maxMembers)

// change calls edit, which changes members, as one change: no list has a part of it. If all is set, members that edit
// does not set do not exist any more. After an error some changes are missing, and the next one must be a complete list.
func (f *feed) change(all bool, edit func(e *edits)) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	before, said := f.changes, f.wrong
	if all {
		f.changes, f.all, f.wrong = make(map[string]*target), true, nil
	}
	edit(&edits{f, said})
	if f.full() {
		f.changes, f.all = before, false
		return errTooMany
	}
	f.listed = f.listed || all
	f.changed()
	return nil
}

func (f *feed) full() bool { return len(f.members)+len(f.changes)+len(f.wrong) > 4*maxMembers }

// edits changes the members of a feed. It is valid during a call of feed.change.
type edits struct {
	f    *feed
	said map[string]string // what was wrong with values before: a complete list that still has them is no news
}

// set adds or changes a member.
func (e *edits) set(key string, t upstream.Target) { e.put(key, &t, "") }

// remove removes a member.
func (e *edits) remove(key string) { e.put(key, nil, "") }

// reject removes a member whose value is wrong, and says what is wrong with it.
func (e *edits) reject(key, problem string) {
	problem = text(problem, maxProblem)
	if f := e.f; f.wrong[key] != problem && e.said[key] != problem && !f.full() {
		f.leftOut.add(f.what, fmt.Sprintf("%q: %s", key, problem))
	}
	e.put(key, nil, problem)
}

func (e *edits) put(key string, t *target, problem string) {
	f := e.f
	if f.full() {
		return
	}
	if f.changes == nil {
		f.changes = make(map[string]*target)
	}
	f.changes[key] = t
	if problem == "" {
		delete(f.wrong, key)
		return
	}
	if f.wrong == nil {
		f.wrong = make(map[string]string)
	}
	f.wrong[key] = problem
}

// connected says that the source is in contact with the registry.
func (f *feed) connected() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.contact || f.err != nil {
		f.contact, f.err = true, nil
		f.changed()
	}
}

// failed says why it is not.
func (f *feed) failed(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.contact, f.err = false, err
	f.changed()
}

func (f *feed) changed() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// publish calls update until ctx ends.
func (f *feed) publish(ctx context.Context, update func([]upstream.Target, error)) {
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	for {
		select {
		case <-f.wake:
			list, have, err := f.list()
			if have {
				update(list, nil)
			}
			if err != nil {
				update(nil, err)
			}
			wait := f.interval
			if wait <= 0 {
				wait = defaultInterval + time.Duration(len(list))*intervalPerMember
			}
			select {
			case <-time.After(wait):
			case <-ctx.Done():
				return
			}
		case <-beat.C:
			f.beat()
		case <-ctx.Done():
			return
		}
	}
}

// beat has the list confirmed if the source is in contact.
func (f *feed) beat() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.contact {
		f.changed()
	}
}

// list returns the list of members if there has been one and it is new, or confirmed by a source that is in contact, and
// the error of one that is not.
func (f *feed) list() (list []upstream.Target, have bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.changes) > 0 || f.all {
		f.merge()
	} else if f.err != nil {
		return nil, false, f.err
	}
	if !f.listed {
		return nil, false, f.err
	}
	list = make([]upstream.Target, len(f.members))
	for i := range f.members {
		list[i] = *f.members[i].target
	}
	return list, true, f.err
}

// merge makes members from the last ones and the changes, in one pass.
func (f *feed) merge() {
	keys := make([]string, 0, len(f.changes))
	for k := range f.changes {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	next := make([]member, 0, len(f.members)+len(keys))
	for _, m := range f.members {
		for len(keys) > 0 && keys[0] < m.key {
			next, keys = f.take(next, keys), keys[1:]
		}
		if len(keys) > 0 && keys[0] == m.key {
			next, keys = f.take(next, keys), keys[1:]
		} else if !f.all {
			next = append(next, m)
		}
	}
	for ; len(keys) > 0; keys = keys[1:] {
		next = f.take(next, keys)
	}
	f.members, f.changes, f.all = next, nil, false
}

func (f *feed) take(to []member, keys []string) []member {
	if t := f.changes[keys[0]]; t != nil {
		to = append(to, member{keys[0], t})
	}
	return to
}
