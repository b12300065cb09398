package fleet

import (
	"context"
	"sync"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/etcd"
)

// A reportView has the present reports.
type reportView struct {
	mu     sync.Mutex
	nodes  map[string]viewed
	listed bool
	cancel context.CancelFunc
	ended  sync.WaitGroup
}

// viewed is a report, and when it was seen first.
type viewed struct {
	Report
	mod  int64
	seen time.Time
}

func (o *Operator) watchReports(ctx context.Context) *reportView {
	ctx, cancel := context.WithCancel(ctx)
	v := &reportView{nodes: map[string]viewed{}, cancel: cancel}
	prefix := nodesPrefix(o.Key)
	v.ended.Go(func() {
		o.Client.Follow(ctx, prefix, func(ch etcd.Change) {
			v.mu.Lock()
			defer v.mu.Unlock()
			was, now := v.nodes, time.Now()
			if v.listed = true; ch.All {
				v.nodes = make(map[string]viewed, len(ch.KVs))
			}
			for _, key := range ch.Deleted {
				name, _ := below(key, prefix)
				delete(v.nodes, name)
			}
			for _, kv := range ch.KVs {
				name, ok := below(kv.Key, prefix)
				if r, err := ParseReport(kv.Value); ok && err == nil {
					next := viewed{r, kv.Mod, now}
					if before, ok := was[name]; ok && before.mod == kv.Mod {
						next.seen = before.seen // a list of all, after contact was lost
					}
					v.nodes[name] = next
				}
			}
		}, nil)
	})
	return v
}

// reports returns the present reports; nil: nothing is known yet.
func (v *reportView) reports() map[string]sighting {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.listed {
		return nil
	}
	list := make(map[string]sighting, len(v.nodes))
	for name, r := range v.nodes {
		list[name] = sighting{r.Report, r.mod, time.Since(r.seen)}
	}
	return list
}

func (v *reportView) close() {
	v.cancel()
	v.ended.Wait()
}
