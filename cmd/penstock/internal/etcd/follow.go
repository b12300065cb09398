package etcd

import (
	"context"
	"errors"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/remote"
)

// A Change is what Follow tells: from one consistent state of a prefix to a later one.
type Change struct {
	All      bool     // KVs is the complete list, in order: keys that are not in it do not exist
	KVs      []KV     // keys that are new or have changed
	Deleted  []string // keys that are gone
	Revision int64    // of the state that this leads to
}

// Follow calls apply with all keys that begin with prefix, and then with every change of them, until ctx ends.
// No change is skipped and none comes twice. After the connection has been lost, Follow goes on where it was; if
// the changes since then have been compacted, or the cluster was restored from a backup, it lists all keys again
// (Change.All). Between attempts it waits as Config.Backoff says.
//
// contact, if it is not nil, is called with each error, and since when there has been no contact, and with nil
// when there is contact again. What apply had then is current, or about to be.
//
// apply and contact are called on the caller's goroutine. While they run, nothing is read.
func (c *Client) Follow(ctx context.Context, prefix string, apply func(Change), contact func(err error, since time.Time)) {
	f := follower{c: c, prefix: prefix, apply: apply, contact: contact, lost: time.Now()}
	if contact == nil {
		f.contact = func(error, time.Time) {}
	}
	f.wait = c.cfg.Backoff
	for ctx.Err() == nil {
		err := f.follow(ctx)
		compacted := (*CompactedError)(nil)
		switch {
		case ctx.Err() != nil || errors.Is(err, errRenew):
			continue
		case errors.As(err, &compacted): // that costs a list, but contact there is
		default:
			if f.lost.IsZero() {
				f.lost = time.Now()
			}
			f.contact(err, f.lost)
		}
		f.wait.Wait(ctx)
	}
}

type follower struct {
	c        *Client
	prefix   string
	apply    func(Change)
	contact  func(error, time.Time)
	revision int64     // what apply has been given; 0: a list is needed
	epoch    int       // of the client, when the list was made
	lost     time.Time // since when there is no contact; zero: there is
	wait     remote.Backoff
}

// follow lists, if it must, and watches until that fails.
func (f *follower) follow(ctx context.Context) error {
	if f.epoch != f.c.epoch() {
		f.revision = 0
	}
	if f.revision == 0 {
		epoch := f.c.epoch()
		list, revision, err := f.c.Prefix(ctx, f.prefix)
		if err != nil {
			return err
		}
		f.revision, f.epoch = revision, epoch
		f.apply(Change{All: true, KVs: list, Revision: revision})
	}
	err := f.c.Watch(ctx, f.prefix, f.revision, func(events []Event, revision int64) {
		f.revision = revision
		if len(events) > 0 {
			f.apply(change(events, revision))
		}
		if !f.lost.IsZero() {
			f.lost = time.Time{}
			f.contact(nil, time.Time{})
		}
		f.wait.Working()
	})
	if compacted := (*CompactedError)(nil); errors.As(err, &compacted) || errors.Is(err, errRestored) || errors.Is(err, errWentBack) {
		f.revision = 0
	}
	return err
}

// change returns the outcome of events: of those of one key, only the last counts.
func change(events []Event, revision int64) Change {
	ch := Change{Revision: revision}
	last := make(map[string]int, len(events))
	for i, e := range events {
		last[e.KV.Key] = i
	}
	for i, e := range events {
		switch {
		case last[e.KV.Key] != i:
		case e.Delete:
			ch.Deleted = append(ch.Deleted, e.KV.Key)
		default:
			ch.KVs = append(ch.KVs, e.KV)
		}
	}
	return ch
}
