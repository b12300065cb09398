package counts

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
)

// A Memory has tables in memory that its owner gives.
type Memory struct {
	tables []*Table
}

// Create writes tables without rows into memory, which must be zero and have at least Size words.
// The memory belongs to the tables from then on, and must stay mapped as long as one of their rows
// is in use.
func Create(mem []atomic.Int64, layouts ...Layout) (*Memory, error) {
	places, directory, size, err := arrange(layouts)
	if err != nil {
		return nil, err
	}
	if size > len(mem) {
		return nil, fmt.Errorf("%d words; allowed: %d or more", len(mem), size)
	}
	mem[versionAt].Store(version)
	mem[sizeAt].Store(int64(size))
	mem[lengthAt].Store(int64(len(directory)))
	mem[checksumAt].Store(checksum(directory))
	pack(mem[headerWords:], string(directory))
	mem[magicAt].Store(magic)
	return open(mem, places)
}

// Open returns the tables that Create wrote into memory, in this process or another one that no
// longer exists, with all rows. The error is ErrNew for memory that is zero. Memory that is damaged,
// or that needs features that this version does not know, is refused with an error.
func Open(mem []atomic.Int64) (*Memory, error) {
	places, err := readDirectory(mem)
	if err != nil {
		return nil, err
	}
	return open(mem, places)
}

func open(mem []atomic.Int64, places []place) (*Memory, error) {
	m := &Memory{}
	for _, p := range places {
		t := &Table{layout: p.Layout, place: p, mem: mem[p.At : p.At+p.words()]}
		if err := t.read(); err != nil {
			return nil, fmt.Errorf("table %.20q: %w", p.Name, err)
		}
		m.tables = append(m.tables, t)
	}
	return m, nil
}

// Table returns the table of that name, nil if there is none.
func (m *Memory) Table(name string) *Table {
	i := slices.IndexFunc(m.tables, func(t *Table) bool { return t.layout.Name == name })
	if i < 0 {
		return nil
	}
	return m.tables[i]
}

// Fits reports whether the memory has the tables of layouts, and in each the words of the layout
// before any others. If it does not, Extended and CopyTo make memory that fits.
func (m *Memory) Fits(layouts ...Layout) bool {
	for i := range layouts {
		l, t := &layouts[i], m.Table(layouts[i].Name)
		if t == nil || t.layout.Key < l.Key || t.layout.Rows < l.Rows || len(t.layout.Words) < len(l.Words) || !slices.Equal(t.layout.Words[:len(l.Words)], l.Words) {
			return false
		}
	}
	return true
}

// Limits of what is kept for another version.
const (
	maxUnknownWords  = 256 // of a table
	maxUnknownTables = 8
)

// Extended returns layouts with the words and tables that the memory has besides: those of another
// version of the program, which would miss them if it came back.
func (m *Memory) Extended(layouts ...Layout) []Layout {
	out := slices.Clone(layouts)
	unknown := 0
	for _, t := range m.tables {
		i := slices.IndexFunc(out, func(l Layout) bool { return l.Name == t.layout.Name })
		if i < 0 {
			if unknown++; unknown <= maxUnknownTables {
				out = append(out, t.layout)
			}
			continue
		}
		l := &out[i]
		l.Words = slices.Clone(l.Words)
		l.Key, l.Rows = max(l.Key, t.layout.Key), max(l.Rows, t.layout.Rows)
		known := make(map[string]bool, len(l.Words))
		for _, w := range l.Words {
			known[w] = true
		}
		room := min(maxUnknownWords, maxWords-len(l.Words))
		for _, w := range t.layout.Words {
			if !known[w] && room > 0 {
				l.Words = append(l.Words, w)
				room--
			}
		}
	}
	return out
}

// CopyTo adds all rows to the tables of the same names in to, which has none of these yet, and where they are among Rows and found by
// Take, as if to had been opened with them. Words are found by name; those that to does not have are left out. Nobody may count in
// either memory meanwhile.
func (m *Memory) CopyTo(to *Memory) {
	for _, t := range m.tables {
		next := to.Table(t.layout.Name)
		if next == nil {
			continue
		}
		at := make([]int, len(t.layout.Words)) // where each word is
		for i, w := range t.layout.Words {
			at[i] = slices.Index(next.layout.Words, w)
		}
		fill := func(to, from []atomic.Int64) {
			for i := range at {
				if at[i] >= 0 {
					to[at[i]].Store(from[i].Load())
				}
			}
		}
		for _, r := range t.Rows() {
			fill(next.inherit(r.key).words, r.words)
		}
		for key, words := range t.first {
			first := make([]atomic.Int64, len(next.layout.Words))
			fill(first, words)
			next.setFirst(key, first)
		}
	}
}

// Unknown returns the indexes of the words after the first n that begin with a prefix: those of
// another version of the program.
func (t *Table) Unknown(n int, prefix string) (list []int) {
	for i := n; i < len(t.layout.Words); i++ {
		if strings.HasPrefix(t.layout.Words[i], prefix) {
			list = append(list, i)
		}
	}
	return list
}
