package discover

import (
	"context"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/etcd"
	"github.com/penstock/penstock/cmd/penstock/internal/remote"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/cmd/penstock/internal/upstream"
)

// An etcdSource finds members as the keys below a prefix; what follows the prefix is the member's name, and the value
// says where it is (parseMember). A member that registers its key with a lease goes when it stops keeping that alive.
type etcdSource struct {
	sources *Sources
	what    spec.Discover
}

func (s etcdSource) Watch(ctx context.Context, update func([]upstream.Target, error)) {
	s.sources.watch(ctx, s.what, update, s.follow)
}

func (s etcdSource) follow(ctx context.Context, f *feed) {
	var wait remote.Backoff
	for ctx.Err() == nil {
		client, done, err := s.sources.client(s.what.Registry)
		if err == nil {
			err = s.followWith(ctx, f, client)
			done()
		}
		if ctx.Err() == nil {
			f.failed(err)
		}
		wait.Wait(ctx)
	}
}

// followWith follows the prefix until ctx ends or there are too many members.
func (s etcdSource) followWith(ctx context.Context, f *feed, client *etcd.Client) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	prefix := s.what.Key
	client.Follow(ctx, prefix, func(c etcd.Change) {
		err := f.change(c.All, func(e *edits) {
			for _, kv := range c.KVs {
				key := kv.Key[min(len(prefix), len(kv.Key)):]
				if t, problem := parseMember(key, kv.Value, s.what.Network); problem != "" {
					e.reject(key, problem)
				} else {
					e.set(key, t)
				}
			}
			for _, k := range c.Deleted {
				e.remove(k[min(len(prefix), len(k)):])
			}
		})
		if err != nil {
			end(err)
		}
	}, func(err error, _ time.Time) {
		if err != nil {
			f.failed(err)
		} else {
			f.connected()
		}
	})
	return context.Cause(ctx)
}
