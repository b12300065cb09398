package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/etcd"
	"github.com/penstock/penstock/cmd/penstock/internal/remote"
	"github.com/penstock/penstock/cmd/penstock/internal/testfleet"
	"github.com/penstock/penstock/internal/testwait"
)

// Members that are registered in etcd come, change, drain and go during load, while etcd is stopped, killed and
// restarted. No byte is lost and no client is refused, and the daemon has the right members in the end.
func TestMembersInEtcd(t *testing.T) {
	t.Parallel()
	registry := testfleet.Etcd(t)
	client, err := etcd.New(etcd.Config{Remote: remote.Config{Servers: []string{registry.URL}}, Timeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	servers := []string{echoServer(t), echoServer(t), echoServer(t), echoServer(t)}
	put := func(name, format string, args ...any) {
		t.Helper()
		if _, err := client.Put(t.Context(), "/services/web/"+name, fmt.Appendf(nil, format, args...), 0); err != nil {
			t.Fatal(err)
		}
	}
	put("fixed", "%s", servers[0])
	put("wrong", "10.0.0.1")
	d := runFile(t, `
reload: {watch: false}
registries: {main: {etcd: ["{0}"]}}
listeners: {a: {listen: "tcp://127.0.0.1:0", to: all, removed: {live-flows: keep}}}
groups: {all: {queue: {size: 100}, discover: [{etcd: /services/web/}], lookups: {vanish: 1}}}
`, registry.URL)
	members := func() string {
		groups, err := d.admin.Groups(d.ctx())
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, m := range groups.Groups[0].Members {
			names = append(names, m.Name)
		}
		return strings.Join(names, " ")
	}
	testwait.Until(t, "the first member", func() bool { return members() == "fixed" })
	if line := d.line("member left out"); line["problem"] == nil || line["name"] != "etcd /services/web/" {
		t.Errorf("%v", line)
	}

	var ended atomic.Bool
	var flows atomic.Int64
	var work sync.WaitGroup
	for k := range 4 {
		work.Go(func() {
			r := rand.New(rand.NewPCG(uint64(k), 1))
			for i := 0; !ended.Load(); i++ {
				if err := churnFlow(d.at("a"), uint64(k)<<32|uint64(i), 1+r.IntN(4)); err != nil {
					t.Errorf("client %d, flow %d: %v", k, i, err)
					return
				}
				flows.Add(1)
			}
		})
	}
	change := func(n int) {
		r := rand.New(rand.NewPCG(7, uint64(n)))
		for range n {
			name := fmt.Sprint("m", r.IntN(6))
			switch r.IntN(4) {
			case 0:
				if _, err := client.Delete(t.Context(), "/services/web/"+name); err != nil {
					t.Error(err)
				}
			case 1:
				put(name, `{"to": %q, "weight": %d, "draining": %v}`, servers[r.IntN(4)], 1+r.IntN(9), r.IntN(2) == 0)
			default:
				put(name, "%s", servers[r.IntN(4)])
			}
		}
	}
	change(150)
	registry.Pause()
	time.AfterFunc(300*time.Millisecond, registry.Resume)
	change(50) // waits for the server
	registry.Kill()
	was := flows.Load()
	testwait.Until(t, "flows without etcd", func() bool { return flows.Load() > was+20 })
	registry.Restart()
	change(150)
	for i := range 6 {
		if _, err := client.Delete(t.Context(), fmt.Sprint("/services/web/m", i)); err != nil {
			t.Fatal(err)
		}
	}
	put("new", "%s", servers[1])
	testwait.Until(t, "the last members", func() bool { return members() == "fixed new" })
	ended.Store(true)
	work.Wait()
	if refused := d.metric("penstock_refusals_total", ""); refused > 0 {
		t.Errorf("%v clients were refused", refused)
	}
	t.Logf("%d flows", flows.Load())
	d.signal(syscall.SIGTERM)
	d.mustExit(0)
	d.records(int(flows.Load()))
}
