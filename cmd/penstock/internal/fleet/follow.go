package fleet

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/etcd"
	"github.com/penstock/penstock/cmd/penstock/internal/remote"
)

// A Follower knows which version a relay is to run.
type Follower struct {
	Client *etcd.Client
	Key    string // of the fleet
	Node   string
	// Ran is the highest version that the relay has run before; 0: none. A registry that has never had it is
	// not the one that it was, and is not followed.
	Ran int64

	mu      sync.Mutex
	current *Current // nil: none, or it cannot be read
	canary  *Canary
	problem error // with current
	contact error // nil: there is contact
	wake    chan struct{}
}

// errNotPublished says that there is no configuration.
var errNotPublished = errors.New("no configuration has been published there; penstock publish does it")

// errDeleted says that there is none any more.
var errDeleted = errors.New("the configuration was deleted; penstock publish makes it again")

// Run calls deliver with each version that the relay is to run, or with an error if there is none or no contact,
// until ctx ends. After an error the same version may come again, which says that all is well. When
// versions change faster than they can be read, only the last one comes.
func (f *Follower) Run(ctx context.Context, deliver func(Version, error)) {
	f.wake = make(chan struct{}, 1)
	f.contact = errNotPublished // replaced before anything is delivered
	var reading sync.WaitGroup
	defer reading.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	reading.Go(func() { f.read(ctx, deliver) })
	f.Client.Follow(ctx, configKey(f.Key), f.apply, func(err error, _ time.Time) {
		f.mu.Lock()
		f.contact = err
		f.mu.Unlock()
		f.changed()
	})
}

func (f *Follower) changed() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// apply notes changes of KEY/config and of KEY/config/canary.
func (f *Follower) apply(ch etcd.Change) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.contact = nil
	if ch.All {
		if f.current == nil {
			f.problem = errNotPublished
		} else {
			f.problem = errDeleted
		}
		f.current, f.canary = nil, nil
	}
	for _, key := range ch.Deleted {
		switch key {
		case configKey(f.Key):
			f.current, f.problem = nil, errDeleted
		case canaryKey(f.Key):
			f.canary = nil
		}
	}
	for _, kv := range ch.KVs {
		switch kv.Key {
		case configKey(f.Key):
			c, err := ParseCurrent(kv.Value)
			if f.current, f.problem = &c, nil; err != nil {
				f.current, f.problem = nil, fmt.Errorf("%s: %w", kv.Key, err)
			}
		case canaryKey(f.Key):
			f.canary = nil
			if c, err := ParseCanary(kv.Value); err == nil { // what cannot be read asks for nothing
				f.canary = &c
			}
		}
	}
	f.changed()
}

// target returns the version that the relay is to run.
func (f *Follower) target() (version int64, hash string, trial bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch c := f.canary; {
	case f.contact != nil:
		return 0, "", false, f.contact
	case f.problem != nil:
		return 0, "", false, f.problem
	case f.current == nil:
		return 0, "", false, errNotPublished
	case f.current.Last < f.Ran:
		return 0, "", false, fmt.Errorf("there have been %d versions, but this relay has run version %d: that was another fleet, or etcd was restored from a backup; the next penstock publish makes it good", f.current.Last, f.Ran)
	case c != nil && c.Version > f.current.Version && c.Has(f.Node):
		return c.Version, c.Hash, true, nil
	}
	return f.current.Version, f.current.Hash, false, nil
}

// read reads the texts of versions and delivers them.
func (f *Follower) read(ctx context.Context, deliver func(Version, error)) {
	var last Version // delivered
	wait := remote.Backoff{Max: 5 * time.Second}
	var again <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.wake:
		case <-again:
		}
		again = nil
		n, hash, trial, err := f.target()
		if err == nil && (n != last.Version || hash != last.Hash) {
			var v Version
			if v, err = readVersion(ctx, f.Client, f.Key, n); err == nil && v.Hash != hash {
				err = fmt.Errorf("the text of version %d is not the one that %s names: its hash is another one", n, configKey(f.Key))
			}
			if now, nowHash, _, _ := f.target(); now != 0 && (now != n || nowHash != hash) {
				f.changed() // meanwhile it is another one
				continue
			}
			if err == nil {
				last = v
				wait.Working()
			} else {
				again = time.After(wait.Next())
			}
		}
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			deliver(Version{}, err)
			continue
		}
		last.Trial = trial
		f.mu.Lock()
		f.Ran = max(f.Ran, last.Version)
		f.mu.Unlock()
		deliver(last, nil)
	}
}

// readVersion reads a version.
func readVersion(ctx context.Context, c *etcd.Client, key string, n int64) (Version, error) {
	kv, _, err := c.Get(ctx, versionKey(key, n))
	if err != nil {
		return Version{}, err
	}
	if kv.Version == 0 {
		return Version{}, fmt.Errorf("there is no version %d", n)
	}
	v, err := ParseVersion(kv.Value)
	if err == nil && v.Version != n {
		err = fmt.Errorf("it is version %d", v.Version)
	}
	if err != nil {
		return Version{}, fmt.Errorf("%s: %w", kv.Key, err)
	}
	return v, nil
}
