package app

import (
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/penstock/penstock/cmd/penstock/internal/admin"
	"github.com/penstock/penstock/cmd/penstock/internal/counts"
	"github.com/penstock/penstock/cmd/penstock/internal/logs"
	"github.com/penstock/penstock/relay"
)

// values continue counters that begin at 0 in each process, and that are small or kept elsewhere: what
// one worker has reported, the next one adds to what it counts. What was counted after the last report
// of a worker that died, at most a heartbeat before, is missing, but no report decreases.
type values struct {
	table *counts.Table

	mu   sync.Mutex
	rows map[string]*value
}

type value struct {
	row    *counts.Row
	before int64 // what the workers before have reported
}

var valuesLayout = counts.Layout{Name: "values", Words: []string{"value"}, Key: 64, Rows: 256}

func newValues(t *counts.Table) *values { return &values{table: t, rows: map[string]*value{}} }

// goOn returns what a counter is that stands at n in this process.
func (v *values) goOn(name string, n int64) int64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	r := v.rows[name]
	if r == nil {
		row := v.table.Take(name)
		r = &value{row, row.Words()[0].Load()}
		v.rows[name] = r
	}
	n += r.before
	if reported := &r.row.Words()[0]; n > reported.Load() {
		reported.Store(n)
	}
	return n
}

// word returns a counter that is counted in the memory itself, from what the worker before left.
func (v *values) word(name string) *atomic.Int64 { return &v.table.Take(name).Words()[0] }

// left returns the word that has what the worker before has left to this one, and nothing of those before it, which a version before has copied
// and not found. It is called once.
func (v *values) left(name string) *atomic.Int64 {
	w := v.word(name)
	if first := v.table.First(name); first != nil {
		w.Add(-first[0].Load())
	}
	return w
}

// engine continues the counters of the engine that are not in its own memory.
func (v *values) engine(s relay.Stats) relay.Stats {
	s.PipesRefused = v.goOn("pipes.refused", s.PipesRefused)
	for i := range s.Buffers.Classes {
		c := &s.Buffers.Classes[i]
		name := "buffers." + strconv.Itoa(c.Size)
		gets, made := c.Gets, c.Gets-c.Hits
		c.Gets = uint64(v.goOn(name+".gets", int64(gets)))
		c.Hits = c.Gets - uint64(v.goOn(name+".made", int64(made)))
		c.Puts += c.Gets - gets // so that the difference, which is what is in use, stays
	}
	return s
}

// reportValues reports what is not counted in memory that outlives the process, and returns it.
func (d *daemon) reportValues(s relay.Stats) (relay.Stats, []admin.LogCounters) {
	own, access := d.accounting.dropped()
	return d.kept.values.engine(s), []admin.LogCounters{{Name: "log", Dropped: own, LeftOut: d.kept.values.goOn("log.left-out", logs.LeftOut(d.log))}, {Name: "access", Dropped: access}}
}
