package discover

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strings"
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

// feedKey returns the key of a name in a feed: of one that is longer than names may be, which in etcd can be more than a
// megabyte, only the beginning.
func feedKey(name string) string {
	if len(name) <= maxName {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return fmt.Sprintf("%s... (%d bytes, %x)", strings.ToValidUTF8(name[:100], ""), len(name), sum[:8])
}

// followWith follows the prefix until ctx ends or there are too many members.
func (s etcdSource) followWith(ctx context.Context, f *feed, client *etcd.Client) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	prefix := s.what.Key
	client.Follow(ctx, prefix, func(c etcd.Change) {
		err := f.change(c.All, func(e *edits) {
			for _, kv := range c.KVs {
				name := kv.Key[min(len(prefix), len(kv.Key)):]
				if t, problem := parseMember(name, kv.Value, s.what.Network); problem != "" {
					e.reject(feedKey(name), problem)
				} else {
					e.set(name, t)
				}
			}
			for _, k := range c.Deleted {
				e.remove(feedKey(k[min(len(prefix), len(k)):]))
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
