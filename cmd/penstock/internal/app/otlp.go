package app

import (
	"context"
	"errors"
	"log/slog"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/penstock/penstock/cmd/penstock/internal/admin"
	"github.com/penstock/penstock/cmd/penstock/internal/config"
	"github.com/penstock/penstock/cmd/penstock/internal/otlp"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// An exporter sends metrics to the collector of one configuration.
type exporter struct {
	cfg     spec.OTLP
	client  *otlp.Client
	next    time.Time
	failing string // why the last attempt failed; empty: it did not
}

// lastExport bounds the last export of a daemon that ends.
const lastExport = 2 * time.Second

// exportMetrics sends metrics to the collector of the running configuration, until the daemon closes, when they are sent a last time,
// or another worker takes over, which has the same counters.
func (d *daemon) exportMetrics() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		select {
		case <-d.background.closing:
			cancel()
		case <-ctx.Done():
		}
	}()
	worker := time.Now()
	gatherer := admin.NewGatherer(d)
	e := &exporter{client: otlp.New(spec.OTLP{})}
	defer func() { e.client.Close() }()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-d.background.closing:
			if e.cfg.To != "" && e.cfg.Every != 0 && e.failing == "" && !d.handingOver.Load() {
				last, cancel := context.WithTimeout(context.Background(), lastExport)
				defer cancel()
				d.export(last, e, gatherer, worker, time.Now())
			}
			return
		case <-tick.C:
		}
		f := d.active.Load()
		if f == nil {
			continue
		}
		now := time.Now()
		if f.OTLP != e.cfg {
			e.client.Close()
			e = &exporter{cfg: f.OTLP, client: otlp.New(f.OTLP), failing: e.failing}
		}
		if e.cfg.To == "" || e.cfg.Every == 0 || now.Before(e.next) || d.handingOver.Load() {
			continue
		}
		if e.next = e.next.Add(e.cfg.Every); !e.next.After(now) {
			e.next = now.Add(e.cfg.Every)
		}
		err := d.export(ctx, e, gatherer, worker, now)
		if ctx.Err() == nil {
			d.tellExport(e, err)
		}
	}
}

// leastExport is how long sending all metrics may take at least; if they are sent less often, it may take until the next time.
const leastExport = 10 * time.Second

// export sends all metrics once. A collector that cannot be reached, or asks to be left alone, is left alone: the next time has all that
// this one has.
func (d *daemon) export(ctx context.Context, e *exporter, g *admin.Gatherer, worker, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, max(e.cfg.Every, leastExport))
	defer cancel()
	ofService, ofProcess, err := g.Gather()
	if d.handingOver.Load() { // it may have begun meanwhile, and what is left here then counts from 0
		return nil
	}
	s := otlp.Source{Version: version(), Instance: e.cfg.Instance}
	for _, part := range []struct {
		families []*dto.MetricFamily
		since    time.Time
	}{{ofService, d.started}, {ofProcess, worker}} {
		for r := range s.Metrics(part.families, part.since, now) {
			failed := e.client.Metrics(ctx, r)
			if err == nil {
				err = failed
			}
			var again *otlp.RetryError
			if errors.As(failed, &again) {
				if later := now.Add(again.After); later.After(e.next) {
					e.next = later
				}
				return err
			}
		}
	}
	return err
}

// tellExport says that metrics cannot be sent, or can be again.
func (d *daemon) tellExport(e *exporter, err error) {
	is := ""
	if err != nil {
		is = config.OneLine(d.sandboxed.Explain(err))
	}
	switch {
	case is != "" && e.failing == "":
		d.log.Error("metrics cannot be sent to the collector", "collector", e.cfg.To, "error", is)
		d.log.event(slog.LevelError, "otlp", e.cfg.To, "metrics cannot be sent: "+is)
	case is == "" && e.failing != "":
		d.log.Info("metrics are sent to the collector again", "collector", e.cfg.To)
		d.log.event(slog.LevelInfo, "otlp", e.cfg.To, "metrics are sent again")
	}
	e.failing = is
}
