package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sort"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/etcd"
	"github.com/penstock/penstock/cmd/penstock/internal/remote"
)

// A Lock is one of a number of places at KEY/locks/NAME. Who asks for one writes a key with a lease; those whose
// keys are the oldest have the places. If the process of one dies, its lease ends and the next one is let in.
type Lock struct {
	c     *etcd.Client
	key   string // of this holder
	lease etcd.LeaseID
	ttl   time.Duration
	lost  chan struct{}
	stop  context.CancelCauseFunc
	done  chan struct{}
}

// A Holder has a place, or waits for one.
type Holder struct {
	By    string    `json:"by"`
	Why   string    `json:"why,omitempty"`
	Since time.Time `json:"since"`
}

// LockConfig says which lock, and who takes it.
type LockConfig struct {
	Client *etcd.Client
	Key    string // of the fleet
	Name   string
	Places int // at least 1; everybody should say the same
	Holder Holder
	TTL    time.Duration // 0: 15 s
	// Full is called when there is no place, with those who have them, and again when they change; nil: nothing is.
	Full func([]Holder)
}

// ErrLost is returned when the lease of a lock has ended, because etcd was away for too long: somebody else may
// have the place.
var ErrLost = errors.New("the lock was lost")

// Acquire waits for a place. The caller must Release it.
func Acquire(ctx context.Context, cfg LockConfig) (*Lock, error) {
	if cfg.TTL <= 0 {
		cfg.TTL = defaultTTL
	}
	cfg.Holder.Since = time.Now()
	text, err := json.Marshal(&cfg.Holder)
	if err != nil {
		return nil, err
	}
	lease, err := cfg.Client.Grant(ctx, cfg.TTL)
	if err != nil {
		return nil, err
	}
	prefix := lockPrefix(cfg.Key, cfg.Name)
	l := &Lock{c: cfg.Client, key: prefix + fmt.Sprintf("%016x", lease), lease: lease, ttl: cfg.TTL, lost: make(chan struct{}), done: make(chan struct{})}
	alive, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	l.stop = stop
	go l.keep(alive)
	if _, err = cfg.Client.Put(ctx, l.key, text, lease); err == nil {
		err = l.await(ctx, &cfg, prefix)
	}
	if err != nil {
		l.Release()
		return nil, err
	}
	return l, nil
}

// await returns when few enough keys are older than this one.
func (l *Lock) await(ctx context.Context, cfg *LockConfig, prefix string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	keys := map[string]etcd.KV{}
	var held bool
	var failed error
	followed := make(chan struct{})
	go func() {
		defer close(followed)
		cfg.Client.Follow(ctx, prefix, func(ch etcd.Change) {
			if ch.All {
				clear(keys)
			}
			for _, kv := range ch.KVs {
				if kv.Lease != 0 { // nobody takes a place for ever
					keys[kv.Key] = kv
				}
			}
			for _, k := range ch.Deleted {
				delete(keys, k)
			}
			own, ok := keys[l.key]
			if !ok {
				failed = ErrLost
				cancel()
				return
			}
			before := older(keys, own)
			if len(before) < max(1, cfg.Places) {
				held = true
				cancel()
				return
			}
			if cfg.Full != nil {
				cfg.Full(before)
			}
		}, nil)
	}()
	select {
	case <-followed:
	case <-l.lost:
		cancel()
		<-followed
		failed = errors.Join(failed, ErrLost)
	}
	switch {
	case held:
		return nil
	case failed != nil:
		return failed
	}
	return context.Cause(ctx)
}

// older returns the holders whose keys are older than own, the oldest first.
func older(keys map[string]etcd.KV, own etcd.KV) []Holder {
	var before []etcd.KV
	for _, kv := range keys {
		if kv.Create < own.Create {
			before = append(before, kv)
		}
	}
	sort.Slice(before, func(i, j int) bool { return before[i].Create < before[j].Create })
	list := make([]Holder, len(before))
	for i, kv := range before {
		list[i], _ = ParseHolder(kv.Value)
	}
	return list
}

// ParseHolder reads who has a place.
func ParseHolder(text []byte) (Holder, error) {
	var h Holder
	if len(text) > maxOrder {
		return h, fmt.Errorf("a holder of %d bytes; allowed: %d", len(text), maxOrder)
	}
	if err := json.Unmarshal(text, &h); err != nil {
		return Holder{}, err
	}
	h.By, h.Why = shorten(h.By), shorten(h.Why)
	return h, nil
}

// keep keeps the lease alive until ctx ends or the lease does.
func (l *Lock) keep(ctx context.Context) {
	defer close(l.done)
	until := time.Now().Add(l.ttl)
	for remote.Sleep(ctx, l.ttl/4) == nil {
		begun := time.Now()
		last, cancel := context.WithDeadline(ctx, until)
		_, err := l.c.KeepAlive(last, l.lease)
		cancel()
		switch {
		case err == nil:
			until = begun.Add(l.ttl)
		case ctx.Err() != nil:
		case errors.Is(err, etcd.ErrNoLease), time.Now().After(until):
			close(l.lost)
			return
		}
	}
}

// Lost is closed when the lock may be somebody else's.
func (l *Lock) Lost() <-chan struct{} { return l.lost }

// Release gives the place back. It may be called more than once.
func (l *Lock) Release() {
	l.stop(nil)
	<-l.done
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	l.c.Revoke(ctx, l.lease)
}
