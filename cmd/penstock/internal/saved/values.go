package saved

import (
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/penstock/penstock/cmd/penstock/internal/counts"
	"github.com/penstock/penstock/relay/stats"
)

// Values continue counters that begin at 0 in each process, and that are small or kept elsewhere: what
// one worker has reported, the next one adds to what it counts. What was counted after the last report
// of a worker that died, at most a heartbeat before, is missing, but no report decreases.
type Values struct {
	table *counts.Table

	mu   sync.Mutex
	rows map[string]*value
}

type value struct {
	row    *counts.Row
	before int64 // what the workers before have reported
}

// ValuesLayout is the layout of their table.
var ValuesLayout = counts.Layout{Name: "values", Words: []string{"value"}, Key: 64, Rows: 256}

// NewValues returns those in a table.
func NewValues(t *counts.Table) *Values { return &Values{table: t, rows: map[string]*value{}} }

// GoOn returns what a counter is that stands at n in this process. It is never less than what was reported: an engine that has handed over, for one, counts
// what lingers of it anew.
func (v *Values) GoOn(name string, n int64) int64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	r := v.rows[name]
	if r == nil {
		row := v.table.Take(name)
		r = &value{row, row.Words()[0].Load()}
		v.rows[name] = r
	}
	n += r.before
	reported := &r.row.Words()[0]
	if was := reported.Load(); n < was {
		return was
	}
	reported.Store(n)
	return n
}

// Word returns a counter that is counted in the memory itself, from what the worker before left.
func (v *Values) Word(name string) *atomic.Int64 { return &v.table.Take(name).Words()[0] }

// LeftWord returns the word that has what the worker before has left to this one, and nothing of those before it, which a version before has copied
// and not found. It is called once.
func (v *Values) LeftWord(name string) *atomic.Int64 {
	w := v.Word(name)
	if first := v.table.First(name); first != nil {
		w.Add(-first[0].Load())
	}
	return w
}

// ContinueEngine continues the counters of the engine that are not in its own memory.
func (v *Values) ContinueEngine(s stats.Engine) stats.Engine {
	s.PipesRefused = v.GoOn("pipes.refused", s.PipesRefused)
	for i := range s.Buffers.Classes {
		c := &s.Buffers.Classes[i]
		name := "buffers." + strconv.Itoa(c.Size)
		gets, made := c.Gets, c.Gets-c.Hits
		c.Gets = uint64(v.GoOn(name+".gets", int64(gets)))
		c.Hits = c.Gets - uint64(v.GoOn(name+".made", int64(made)))
		c.Puts += c.Gets - gets // so that the difference, which is what is in use, stays
	}
	return s
}
