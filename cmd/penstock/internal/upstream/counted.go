package upstream

import (
	"encoding/binary"
	"runtime"
	"sync/atomic"

	"github.com/penstock/penstock/cmd/penstock/internal/counts"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// The words of a member, of a group, and of a name that is looked up.
const (
	totalAt       = iota // leases ever
	failuresAt           // connects that failed
	connectsAt           // connects that did not
	connectTimeAt        // how long those took together, in nanoseconds
	ejectionsAt
	answersAt    // flows that have ended in which it sent a byte
	answerTimeAt // how long their first bytes took together, in nanoseconds
	memberWords
)

const (
	queuedAt   = iota // flows that were ever queued
	downKeptAt        // flows of members that went down together with most of the group
	groupWords
)

const (
	lookupFailuresAt = iota
	lookupWords
)

// Layouts returns the layouts of the tables in which a Set counts.
func Layouts() []counts.Layout {
	return []counts.Layout{
		{Name: "members", Words: []string{"total", "failures", "connects", "connect-time", "ejections", "answers", "answer-time"}, Key: 504, Rows: 1 << 16},
		{Name: "groups", Words: []string{"queued", "down-kept"}, Key: 120, Rows: 1 << 13},
		{Name: "lookups", Words: []string{"failures"}, Key: 312, Rows: 1 << 14},
	}
}

// tables are those of Layouts.
type tables struct{ members, groups, lookups *counts.Table }

// tablesOf returns the tables in a memory, or in the heap if m is nil.
func tablesOf(m *counts.Memory) tables {
	var list [3]*counts.Table
	for i, l := range Layouts() {
		if m != nil {
			list[i] = m.Table(l.Name)
		}
		if list[i] == nil {
			list[i] = counts.Heap(l)
		}
	}
	return tables{list[0], list[1], list[2]}
}

// memberCounts are the counts of a member. They go on in the next process.
type memberCounts struct {
	row   *counts.Row
	words *[memberWords]atomic.Int64
}

func newMemberCounts(t *counts.Table, key string) memberCounts {
	row := t.Take(key)
	return memberCounts{row, (*[memberWords]atomic.Int64)(row.Words())}
}

// add adds n to a word. A member that only stands for one that is gone counts nothing.
func (c *memberCounts) add(word int, n int64) {
	if c.words != nil {
		c.words[word].Add(n)
		runtime.KeepAlive(c.row)
	}
}

func (c *memberCounts) load(word int) uint64 {
	if c.words == nil {
		return 0
	}
	n := uint64(c.words[word].Load())
	runtime.KeepAlive(c.row)
	return n
}

// memberID identifies a member of a group in memory and documents that outlive the process: each
// name after its length.
func memberID(group, name, url string) string {
	var b []byte
	for _, s := range [...]string{group, name, url} {
		b = append(binary.AppendUvarint(b, uint64(len(s))), s...)
	}
	return string(b)
}

func (m *Member) id() string { return memberID(m.group.name, m.name, spec.URL(m.addr, m.ports)) }

// startCounting gives the group its row. The caller holds the Set's lock.
func (g *Group) startCounting() {
	g.row = g.set.tables.groups.Take(g.name)
	g.queue.total = &g.row.Words()[queuedAt]
}

// lookupCounts counts the failures of a name, which several watches may share.
type lookupCounts struct {
	row     *counts.Row
	watches int
}

// countLookup returns the row of a watch's name. The caller holds the Set's lock.
func (s *Set) countLookup(name string) *counts.Row {
	c := s.lookupRows[name]
	if c == nil {
		c = &lookupCounts{row: s.tables.lookups.Take(name)}
		s.lookupRows[name] = c
	}
	c.watches++
	return c.row
}

// endLookup gives back what countLookup returned. The caller holds the Set's lock.
func (s *Set) endLookup(name string) {
	c := s.lookupRows[name]
	if c.watches--; c.watches == 0 {
		c.row.Remove()
		delete(s.lookupRows, name)
	}
}
