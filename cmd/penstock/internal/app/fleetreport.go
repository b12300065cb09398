package app

import (
	"cmp"
	"context"
	"os"
	"runtime"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/account"
	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/cmd/penstock/internal/config"
	"github.com/penstock/penstock/cmd/penstock/internal/fleet"
	"github.com/penstock/penstock/cmd/penstock/internal/host"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/cmd/penstock/internal/upstream"
	"github.com/penstock/penstock/keeper"
	"github.com/penstock/penstock/relay"
)

// fleetReport returns what this relay reports to its fleet. The version is that of the running configuration, and so are the
// listeners and groups: that of Status becomes another one a while after these have.
func (d *daemon) fleetReport() fleet.Report {
	d.active.switching.RLock()
	f, groups := d.active.Load(), d.set.Snapshot()
	d.active.switching.RUnlock()
	now := d.snapshot()
	s := now.Status()
	r := fleet.Report{
		Hash: spec.HashOf(f.Text), Penstock: version(), Since: d.started, State: s.State,
		Flows: s.Totals.Flows, Begun: s.Totals.Begun, Refusals: s.Totals.Refused, Failed: s.Totals.Failed,
		BytesUp: s.Totals.BytesUp, BytesDown: s.Totals.BytesDown,
		Groups: map[string]fleet.Group{}, Host: hostHealth(s.Resources.CPU),
	}
	r.Served, r.Listeners = servedOf(now.points(), f.Listeners)
	if s.Keeper != nil {
		for _, start := range s.Keeper.Starts {
			if start.Reason == keeper.Crash.String() {
				r.Crashes = start.Count
			}
		}
	}
	if f := s.Config.Failed; f != nil && len(f.Errors) > 0 {
		r.Refused = &fleet.Refused{Error: configErrorText(&f.Errors[0]), At: f.Time}
	}
	for i := range s.Config.Remote {
		c := &s.Config.Remote[i]
		if c.Refused != nil {
			r.Refused = &fleet.Refused{Version: versionNumber(c.Refused.Version), Error: c.Refused.Error, At: c.Refused.Time}
		}
		r.Sources = append(r.Sources, fleet.Source{Name: c.Source, Age: ageOf(c.Since), Error: c.Error})
	}
	for i := range f.Layers {
		r.Version = versionNumber(f.Layers[i].Version)
	}
	for _, g := range groups {
		if g.Named {
			continue // nothing in it can be down
		}
		out := fleet.Group{All: len(g.Members)}
		for i := range g.Members {
			m := &g.Members[i]
			r.ConnectFailures += int64(m.Failures)
			switch {
			case m.AcceptsFlows:
				out.Up++
			case m.State == upstream.Down || m.State == upstream.Ejected:
				out.Down = append(out.Down, m.Name)
			}
		}
		slices.Sort(out.Down)
		r.Groups[g.Name] = out
		for _, l := range g.Lookups {
			r.Sources = append(r.Sources, fleet.Source{Name: l.Name, Age: ageOf(l.At), Error: l.Err})
		}
	}
	sort.Slice(r.Sources, func(i, j int) bool { // those with errors first, because there may be too many
		a, b := &r.Sources[i], &r.Sources[j]
		return cmp.Or(-cmp.Compare(min(1, len(a.Error)), min(1, len(b.Error))), cmp.Compare(a.Name, b.Name)) < 0
	})
	r.Sources = slices.CompactFunc(r.Sources, func(a, b fleet.Source) bool { return a.Name == b.Name })
	return r
}

// servedOf returns how the clients of all listeners, and of those that are configured, were served.
func servedOf(points []account.Point, listeners []*spec.Listener) (all *fleet.Served, each map[string]fleet.Listener) {
	configured := make(map[string]*fleet.Served, len(listeners))
	for _, l := range listeners {
		configured[l.Name] = newServed()
	}
	all = newServed()
	for i := range points {
		addServed(all, &points[i])
		if l := configured[points[i].Listener]; l != nil {
			addServed(l, &points[i])
		}
	}
	each = make(map[string]fleet.Listener, len(listeners))
	for _, l := range listeners {
		each[l.Name] = fleet.Listener{Served: *configured[l.Name], Socket: socketOf(l)}
	}
	return all, each
}

// socketOf returns where a listener listens.
func socketOf(l *spec.Listener) fleet.Socket {
	at := l.Listen.String()
	if l.Inherit != "" {
		at = "inherit " + l.Inherit
	}
	return fleet.Socket{Listen: at, Interface: l.Interface}
}

func newServed() *fleet.Served {
	return &fleet.Served{Ends: map[string]int64{}, Sizes: make([]int64, account.NumSizes), FirstByte: make([]int64, len(fleet.FirstByteBounds)+1)}
}

// addServed adds what a series has counted.
func addServed(s *fleet.Served, p *account.Point) {
	s.Begun += p.Begun
	s.ConnectFailures += p.Failures
	s.BytesDown += p.Down.Bytes
	for cause, n := range p.Ended {
		if n > 0 {
			s.Ends[relay.Cause(cause).String()] += n
		}
	}
	for i, n := range p.Sizes {
		s.Sizes[i] += n
	}
	for i, n := range p.FirstByte.Counts {
		class := len(fleet.FirstByteBounds)
		if i < len(p.FirstByte.Bounds) {
			class, _ = slices.BinarySearch(fleet.FirstByteBounds, p.FirstByte.Bounds[i].Seconds())
		}
		s.FirstByte[class] += n
	}
}

// configErrorText returns an error of a configuration on one line.
func configErrorText(e *api.ConfigError) string {
	text := e.Message
	if e.Line > 0 {
		text = e.Source + ":" + strconv.Itoa(e.Line) + ":" + strconv.Itoa(e.Column) + ": " + text
	}
	return text
}

// versionNumber returns the number of a version in etcd; 0: it has none.
func versionNumber(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

func ageOf(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return time.Since(t).Seconds()
}

// hostHealth returns the health of the host, as far as /proc says.
func hostHealth(cpu float64) fleet.Host {
	h := fleet.Host{CPU: cpu, CPUs: runtime.NumCPU(), MaxFDs: host.MaxDescriptors()}
	h.Name, _ = os.Hostname()
	if f := procFields("/proc/loadavg"); len(f) > 0 {
		h.Load, _ = strconv.ParseFloat(f[0], 64)
	}
	if f := procFields("/proc/self/statm"); len(f) > 1 {
		pages, _ := strconv.ParseInt(f[1], 10, 64)
		h.Memory = pages * int64(os.Getpagesize())
	}
	if f := procFields("/proc/meminfo"); len(f) > 0 {
		if i := slices.Index(f, "MemAvailable:"); i >= 0 && i+1 < len(f) {
			kib, _ := strconv.ParseInt(f[i+1], 10, 64)
			h.Free = kib << 10
		}
	}
	// Since Linux 6.2 (f1f1f2569901) the size of this folder is the number of open descriptors; before, it was 0.
	if info, err := os.Stat("/proc/self/fd"); err == nil {
		h.FDs = info.Size()
	}
	return h
}

// procFields returns the words of a small file; nil: it cannot be read.
func procFields(path string) []string {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	return strings.Fields(string(text))
}

// carryOut carries out an order of the fleet's operator.
func (d *daemon) carryOut(ctx context.Context, o fleet.Order) fleet.Answer {
	switch o.Kind {
	case fleet.OrderReload:
		diff, err := d.reload(ctx, "fleet: "+config.PlainLine(o.By))
		if err != nil {
			return fleet.Answer{State: "failed", Error: config.OneLine(err)}
		}
		return fleet.Answer{State: "done", Changes: len(diff.Changes)}
	case fleet.OrderFlows:
		return d.fleetFlows(ctx, &o)
	}
	return fleet.Answer{State: "refused", Error: "this relay cannot do that"}
}

// fleetFlows lists flows, those with the most bytes first.
func (d *daemon) fleetFlows(ctx context.Context, o *fleet.Order) fleet.Answer {
	a := fleet.Answer{State: "done"}
	limit := o.Limit
	if limit == 0 {
		limit = fleet.MaxFlows
	}
	cut := func() {
		sort.Slice(a.Flows, func(i, j int) bool {
			x, y := &a.Flows[i], &a.Flows[j]
			return cmp.Or(cmp.Compare(y.Up+y.Down, x.Up+x.Down), cmp.Compare(x.ID, y.ID)) < 0
		})
		a.Flows = a.Flows[:min(len(a.Flows), limit)]
	}
	err := d.Flows(ctx, func(flows []api.Flow) bool {
		for i := range flows {
			f := &flows[i]
			if o.Group != "" && f.Group != o.Group || o.Member != "" && f.Member != o.Member && f.Upstream.String() != o.Member {
				continue
			}
			a.Matched++
			a.Flows = append(a.Flows, fleet.Flow{
				ID: f.ID, Client: f.Client.String(), Upstream: f.Upstream.String(), Listener: f.Listener, Group: f.Group, Member: f.Member,
				Age: f.Age, Up: f.Up.Bytes, Down: f.Down.Bytes,
			})
			if len(a.Flows) >= 4*limit {
				cut()
			}
		}
		return true
	})
	cut()
	if err != nil {
		return fleet.Answer{State: "failed", Error: err.Error()}
	}
	return a
}
