package app

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/cmd/penstock/internal/budget"
	"github.com/penstock/penstock/cmd/penstock/internal/keeping"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/relay/stats"
)

// overload returns how close the daemon is to its limits. Each resource adds its rows here.
func (d *daemon) overload(s *stats.Engine) (o api.Overload) {
	d.memoryOverload(&o, s)
	r, a := descriptorOverload(s)
	o.Resources, o.Actions = append(o.Resources, r), append(o.Actions, a)
	return o
}

// resourceMemory is the name of memory among the resources.
const resourceMemory = "memory"

// memory is what is done about the limit on memory.
type memory struct {
	budget *budget.Controller               // measures it; nil: it has no limit
	counts [budget.NumActions]*atomic.Int64 // what its actions have done
}

// startBudget starts to measure memory, if it is limited, or may be. It returns nil otherwise.
func (d *daemon) startBudget(e *spec.Engine) *budget.Controller {
	if e.Memory == spec.MemoryNone {
		return nil
	}
	m := budget.Open("/", true, max(0, e.Memory))
	if !m.Limited() {
		return nil
	}
	cfg := budget.Config{Engine: d.engine.Overload(), Meter: m, Changed: d.overloadChanged, Limited: d.memoryLimited, KeepGoLimit: budget.GoLimitIsSet()}
	for a := range cfg.Counts {
		cfg.Counts[a] = d.keeping.Values.Word("overload." + budget.Action(a).String())
	}
	d.memory.counts = cfg.Counts
	return budget.Start(cfg)
}

// memoryOverload adds the rows of memory, if there is a limit.
func (d *daemon) memoryOverload(o *api.Overload, e *stats.Engine) {
	if d.memory.budget == nil {
		return
	}
	s := d.memory.budget.State()
	if s.Limit == 0 && s.Err == nil {
		return
	}
	r := api.OverloadResource{Name: resourceMemory, Limit: s.Limit, Use: s.Use, Pressure: s.Pressure, Source: s.Source}
	if s.Err != nil {
		r.Error = s.Err.Error()
	}
	o.Resources = append(o.Resources, r)
	for a := range budget.Action(budget.NumActions) {
		row := api.OverloadAction{Name: a.String(), Resource: resourceMemory, Threshold: a.Threshold(), Active: s.Active[a], Count: d.memory.counts[a].Load()}
		if a == budget.NoDatagramFlows {
			total := e.Total()
			row.Count = total.Datagrams.Dropped.Get(stats.DropOverload)
		}
		o.Actions = append(o.Actions, row)
	}
}

// overloadChanged logs that an action begins or ends. Giving back is no news.
func (d *daemon) overloadChanged(a budget.Action, active bool, r budget.Reading) {
	if a == budget.Shrink {
		return
	}
	level, what := slog.LevelWarn, "begins"
	if !active {
		level, what = slog.LevelInfo, "ends"
	}
	d.log.Log(context.Background(), level, "overload", "action", a.String(), "active", active, "resource", resourceMemory, "use", r.Use, "limit", r.Limit,
		"limited_by", r.Source, "count", d.memory.counts[a].Load())
	d.log.event(level, "overload", resourceMemory, fmt.Sprintf("%s %s at %.0f%% of the limit", a, what, 100*r.Pressure))
}

// oomShare is the memory by which the worker is made to look larger to the kernel, so that it is chosen
// instead of the keeper when a control group is out of memory: the worker's flows outlive it. A keeper
// has about half of that.
const oomShare = 16 << 20

// memoryLimited is called when the limit on memory is known, or has changed.
func (d *daemon) memoryLimited(limit int64) {
	if score := d.keeping.OOMScore(); score != nil && limit > 0 {
		preferAsVictim(score, limit)
	}
}

// preferAsVictim raises the process's score for the OOM killer above the keeper's, by oomShare of the
// limit. It is not lowered again: that may take a capability. proc(5), oom_score_adj.
func preferAsVictim(score io.Writer, limit int64) {
	scoreIn := func(name string) (int, error) {
		text, err := os.ReadFile(name)
		if err != nil {
			return 0, err
		}
		return strconv.Atoi(strings.TrimSpace(string(text)))
	}
	keeper, err := scoreIn(fmt.Sprintf("/proc/%d/oom_score_adj", os.Getppid()))
	if err != nil {
		return
	}
	wanted := min(1000, keeper+int(min(1000, (1000*oomShare+limit-1)/limit)))
	if now, err := scoreIn(keeping.OwnOOMScore); err == nil && now < wanted {
		io.WriteString(score, strconv.Itoa(wanted))
	}
}
