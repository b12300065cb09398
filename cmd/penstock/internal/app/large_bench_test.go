package app

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/netip"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/keeping"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/cmd/penstock/internal/upstream"
	"github.com/penstock/penstock/relay"
)

// BenchmarkLargeGroup measures what operators and keepers read of a group of 10,000 members.
func BenchmarkLargeGroup(b *testing.B) {
	d := spec.Discover{Registry: spec.Registry{Kind: "consul", Servers: "http://127.0.0.1:1"}, Key: "web", Network: spec.TCP}
	cfg := &spec.Config{Engine: spec.Engine{Loops: 1}, Groups: []*spec.Group{{Name: "web", Balance: "random", Discover: []spec.Discover{d}}}}
	daemon, err := newDaemon(slog.New(slog.DiscardHandler), new(slog.LevelVar), func() int64 { return 0 }, cfg, keeping.Alone(), nil)
	if err != nil {
		b.Fatal(err)
	}
	defer daemon.close()
	source := make(told, 1)
	daemon.set.Close()
	daemon.set = upstream.NewSet(upstream.Options{Discoverer: func(spec.Discover) upstream.Discoverer { return source }})
	if err := daemon.apply(context.Background(), cfg); err != nil {
		b.Fatal(err)
	}
	var ts []upstream.Target
	for i := range 10000 {
		addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), 80)
		ts = append(ts, upstream.Target{Name: fmt.Sprintf("web-%05d", i), Weight: 1, Zone: "eu-1a", Addr: relay.Addr{Network: relay.TCP, AddrPort: addr}})
	}
	source <- ts
	if err := daemon.set.Wait(context.Background()); err != nil {
		b.Fatal(err)
	}
	for name, encode := range map[string]func() ([]byte, error){
		"api":     func() ([]byte, error) { return json.Marshal(daemon.Groups()) },
		"keeper":  func() ([]byte, error) { return json.Marshal(daemon.set.Save()) },
		"answers": func() ([]byte, error) { return upstream.EncodeAnswers(daemon.set.GoodAnswers()) },
	} {
		b.Run("members=10000/what="+name, func(b *testing.B) {
			b.ReportAllocs()
			for range b.N {
				text, err := encode()
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(len(text))/1e6, "MB")
			}
		})
	}
}

// told is a Discoverer that gives the answers that a test sends.
type told chan []upstream.Target

func (a told) Watch(ctx context.Context, update func([]upstream.Target, error)) {
	for {
		select {
		case ts := <-a:
			update(ts, nil)
		case <-ctx.Done():
			return
		}
	}
}
