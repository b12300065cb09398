package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/cmd/penstock/internal/config"
	"github.com/penstock/penstock/cmd/penstock/internal/earlykeeper"
	"github.com/penstock/penstock/cmd/penstock/internal/lists"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// Lists of networks.

func (d *daemon) listHost() lists.Host {
	return lists.Host{Open: d.keeping.Asker(earlykeeper.Read)}
}

// readAhead reads those lists of a configuration that are files, while the worker before still relays: nobody need wait for a million networks
// to be read. What cannot be read is tried again by openLists, which says so.
func readAhead(ctx context.Context, cfg *spec.Config) *lists.Table {
	t := lists.NewTable(cfg.Lists, nil, nil)
	for _, s := range cfg.Lists {
		if s.File != "" {
			t.Named(s.Name).Load(ctx, time.Now(), lists.Host{})
		}
	}
	return t
}

// openLists makes the lists of the configuration, and reads those that are files: without one that it has never read, nobody would know
// what the configuration asks for. Others are loaded as soon as it runs.
func (a *application) openLists() error {
	a.lists = lists.NewTable(a.written.Lists, a.old.lists, func(name string) *atomic.Int64 { return a.keeping.Values.Word("list.hits." + name) })
	a.lists.Bans = &a.bans.Bans
	var errs []error
	for _, s := range a.written.Lists {
		l := a.lists.Named(s.Name)
		l.GoOn(a.listsAhead.Named(s.Name))
		if a.restoreList(l); s.File == "" || !l.Status().Loaded.IsZero() {
			continue
		}
		if err := l.Load(a.ctx, time.Now(), a.listHost()); err != nil {
			errs = append(errs, fmt.Errorf("lists.%s: %w", s.Name, a.sandboxed.Explain(err)))
		}
	}
	a.listsAhead = nil
	return a.goWithout(errors.Join(errs...))
}

// lookAtLists loads lists again that have changed, until the daemon closes. A list that takes long keeps no other one waiting.
func (d *daemon) lookAtLists() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	busy := sync.Map{}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-d.background.closing:
			cancel()
			running.Wait()
			cfg := d.active.Load()
			d.saveLists(cfg.Config, cfg.lists)
			return
		case <-tick.C:
		case <-d.listsChanged:
			d.forgetLists(d.active.Load().lists)
		}
		cfg := d.active.Load()
		for _, s := range cfg.Lists {
			l := cfg.lists.Named(s.Name)
			if _, ok := busy.LoadOrStore(l, true); ok {
				continue
			}
			running.Go(func() {
				defer busy.Delete(l)
				before := l.Status()
				if looked, _ := l.Look(ctx, time.Now(), d.listHost()); looked && ctx.Err() == nil {
					d.tellList(l, before)
				}
				d.saveList(l, false)
			})
		}
	}
}

// tellList says what has become of a list, if it is not what was said before.
func (d *daemon) tellList(l *lists.List, before lists.Status) {
	s, name := l.Status(), l.Spec.Name
	switch {
	case s.Err != nil && (before.Err == nil || before.Err.Error() != s.Err.Error()):
		what := "the list cannot be loaded; what was loaded before stays"
		if s.Saved {
			what = fmt.Sprintf("the list cannot be loaded; what was saved %v ago is used", time.Since(s.Loaded).Round(time.Second))
		}
		if s.Loaded.IsZero() {
			what = "the list cannot be loaded, and is empty: deny refuses nobody by it, and allow admits nobody"
		}
		d.log.Error(what, "list", name, "error", config.OneLine(d.sandboxed.Explain(s.Err)))
		d.log.event(slog.LevelError, "list", name, what+": "+config.OneLine(s.Err))
	case s.Err == nil && !s.Loaded.Equal(before.Loaded):
		attrs := []any{"list", name, "networks", l.Set().Len()}
		if s.Report.Bad > 0 {
			d.log.Warn("lines of a list are not networks, and were left out", append(attrs, "lines", s.Report.Bad, "first", strings.Join(s.Report.Named, "; "))...)
		} else {
			d.log.Info("list loaded", attrs...)
		}
		d.log.event(slog.LevelInfo, "list", name, fmt.Sprintf("was loaded: %s", config.Counted(l.Set().Len(), "network")))
	}
}

// Lists returns the lists of networks, in the order of the file.
func (d *daemon) Lists() api.Lists {
	cfg := d.active.Load()
	out := api.Lists{Lists: []api.List{}}
	for _, s := range cfg.Lists {
		l := cfg.lists.Named(s.Name)
		at, set := l.Status(), l.Set()
		o := api.List{Name: s.Name, Source: sourceOfList(s), Networks: set.Len(), Bytes: set.Bytes(), Hits: l.Hits(), Loaded: at.Loaded, Saved: at.Saved, Failures: at.Failures, BadLines: at.Report.Bad, FirstBad: at.Report.Named}
		if at.Err != nil {
			o.Error, o.Since = config.OneLine(at.Err), at.Since
		}
		out.Lists = append(out.Lists, o)
	}
	return out
}

func sourceOfList(l *spec.List) string {
	if l.Etcd != "" {
		return "etcd " + l.Etcd
	}
	return l.File + l.URL + l.CrowdSec
}

func (d *daemon) pokeLists() {
	select {
	case d.listsChanged <- struct{}{}:
	default:
	}
}
