package etcd

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/testfleet"
	"github.com/penstock/penstock/internal/testnet"
)

// The etcd in memory, by which fleets are tested, answers random requests as a real one does.
func TestLikeEtcd(t *testing.T) {
	t.Parallel()
	const seeds, steps = 2, 150
	var memory, real [seeds][]string
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) {
			network := testnet.NewNetwork()
			cfg := quick(testfleet.NewMemoryEtcd(t, network).URL)
			cfg.Remote.DialContext = network.DialContext
			memory[seed] = randomRequests(t, open(t, cfg), uint64(seed), steps)
		})
		s := testfleet.Etcd(t)
		real[seed] = randomRequests(t, open(t, quick(s.URL)), uint64(seed), steps)
		s.Kill()
		for i, want := range real[seed] {
			if got := memory[seed][i]; got != want {
				t.Errorf("seed %d, step %d:\nin memory %s\n     real %s", seed, i, got, want)
				break
			}
		}
	}
}

// requests makes requests, and keeps what they have had for an answer.
type requests struct {
	*rand.Rand
	*testing.T
	c      *Client
	told   []string
	leases []LeaseID
}

func randomRequests(t *testing.T, c *Client, seed uint64, steps int) []string {
	t.Helper()
	r := &requests{Rand: rand.New(rand.NewPCG(seed, 7)), T: t, c: c, leases: []LeaseID{0}}
	c.cfg.PageKeys = 3
	r.large()
	for range steps {
		r.step(t.Context())
	}
	r.watches()
	return r.told
}

func (r *requests) tell(what string, revision int64, err error, more ...any) {
	var answered *Error
	var compacted *CompactedError
	switch {
	case errors.As(err, &compacted):
		err = errors.New("compacted")
	case errors.Is(err, ErrNoLease):
		err = errors.New("no lease")
	case errors.As(err, &answered):
		err = fmt.Errorf("code %d, status %d", answered.Code, answered.Status)
	}
	r.told = append(r.told, fmt.Sprint(what, " revision ", revision, ": ", fmt.Sprintln(append(more, err)...)))
}

func (r *requests) key() string { return fmt.Sprintf("/%c/%d", 'a'+r.IntN(2), r.IntN(4)) }

// lease returns a lease, which may have ended, or none.
func (r *requests) lease() LeaseID { return r.leases[r.IntN(len(r.leases))] }

func (r *requests) kvs(list []KV) string {
	var b strings.Builder
	for _, kv := range list {
		fmt.Fprintf(&b, "%s=%q create %d mod %d version %d lease %d; ", kv.Key, kv.Value, kv.Create, kv.Mod, kv.Version, slices.Index(r.leases, kv.Lease))
	}
	return b.String()
}

func (r *requests) op() Op {
	switch r.IntN(8) {
	case 0:
		return Delete(r.key())
	case 1:
		return DeletePrefix(r.key()[:2])
	case 2:
		return DeleteRange(r.key(), r.key())
	case 3:
		return Get(r.key())
	case 4:
		return GetPrefix(r.key()[:2], r.IntN(4))
	case 5:
		return GetKeys("/")
	}
	var value []byte
	if r.IntN(4) > 0 {
		value = fmt.Append(nil, r.IntN(3))
	}
	return Put(r.key(), value, r.lease())
}

func (r *requests) compare() Compare {
	k := r.key()
	kv, _, err := r.c.Get(r.Context(), k)
	if err != nil {
		r.Fatal(err)
	}
	near := int64(r.IntN(4) / 3)
	return []Compare{Absent(k), Present(k), VersionIs(k, kv.Version+near), ModIs(k, kv.Mod+near), CreateIs(k, kv.Create+near), ValueIs(k, kv.Value), ValueIs(k, nil)}[r.IntN(7)]
}

func (r *requests) txn() (t Txn) {
	for range r.IntN(3) {
		t.If = append(t.If, r.compare())
	}
	for range r.IntN(5) {
		t.Then = append(t.Then, r.op())
	}
	for range r.IntN(3) {
		t.Else = append(t.Else, r.op())
	}
	if r.IntN(20) == 0 {
		for i := range 127 + r.IntN(3) {
			t.Else = append(t.Else[:len(t.Else):len(t.Else)], Put(fmt.Sprint("/many/", i), nil, 0))
		}
	}
	return t
}

func (r *requests) step(ctx context.Context) {
	switch r.IntN(12) {
	default:
		a, err := r.c.Do(ctx, r.txn())
		var answers []string
		for _, one := range a.Answers {
			answers = append(answers, fmt.Sprint(one.Deleted, " ", r.kvs(one.KVs)))
		}
		r.tell("transaction", a.Revision, err, a.Succeeded, strings.Join(answers, "| "))
	case 0:
		kv, revision, err := r.c.Get(ctx, r.key())
		r.tell("get", revision, err, r.kvs([]KV{kv}))
	case 1:
		list, revision, err := r.c.Prefix(ctx, "/")
		r.tell("prefix", revision, err, r.kvs(list))
	case 2: // of another time
		var out rangeResponse
		err := r.c.call(ctx, "/v3/kv/range", rangeRequest{Key: []byte("/"), End: []byte(NoLimit), Revision: int64Text(r.Int64N(r.c.revision() + 2))}, &out, true)
		r.tell("range", int64(out.Header.Revision), err, out.Count, out.More, r.kvs(kvs(out.KVs)))
	case 3:
		id, err := r.c.Grant(ctx, time.Minute)
		r.leases = append(r.leases, id)
		r.tell("grant", 0, err, id != 0)
	case 4:
		d, err := r.c.KeepAlive(ctx, r.lease())
		r.tell("keep alive", 0, err, d)
	case 5:
		r.tell("revoke", 0, r.c.Revoke(ctx, r.lease()))
	case 6:
		if r.IntN(5) == 0 {
			var out rangeResponse
			err := r.c.call(ctx, "/v3/kv/compaction", map[string]any{"revision": fmt.Sprint(r.Int64N(r.c.revision() + 2))}, &out, true)
			r.tell("compaction", int64(out.Header.Revision), err)
		}
	}
}

// large puts values of which one is too large.
func (r *requests) large() {
	for _, size := range []int{1 << 20, 3<<19 + 1} {
		_, err := r.c.Put(r.Context(), "/large", make([]byte, size), 0)
		r.tell(fmt.Sprint("put of ", size), 0, err)
	}
	n, err := r.c.Delete(r.Context(), "/large")
	r.tell("delete", 0, err, n)
}

// watches tells what happened after revisions.
func (r *requests) watches() {
	last := mustPut(r.T, r.c, "/a/last", "", 0)
	for after := int64(0); after < last; after += 1 + r.Int64N(8) {
		ctx, cancel := context.WithTimeout(r.Context(), patience)
		err := r.c.Watch(ctx, "/a/", after, func(events []Event, revision int64) {
			for _, e := range events {
				r.told = append(r.told, fmt.Sprint("after ", after, " deleted ", e.Delete, " ", r.kvs([]KV{e.KV})))
			}
			if revision == last {
				cancel()
			}
		})
		cancel()
		if errors.Is(err, context.Canceled) {
			err = nil
		}
		r.tell("watch", after, err)
	}
}
