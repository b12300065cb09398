package console

import (
	"fmt"
	"io"
	"strings"
)

// table is text in columns. Its cells are cleaned as they are added.
type table struct {
	cols []column
	rows [][]string
}

// column is one of a table. Where the table would be wider than the terminal,
// spare columns are left out, the last one first, as long as soft ones have less than
// enough cells; then soft ones give way until they have softest cells.
type column struct {
	head               string
	right, soft, spare bool
}

const (
	softest = 8
	enough  = 21 // an IPv4 address with its port
	gap     = 2  // cells between columns
)

// newTable takes the heads of the columns: ">" before one aligns its column to
// the right, "~" makes it soft, "?" spare.
func newTable(heads ...string) *table {
	t := new(table)
	for _, h := range heads {
		c := column{head: strings.TrimLeft(h, ">~?")}
		marks := h[:len(h)-len(c.head)]
		c.right, c.soft, c.spare = strings.Contains(marks, ">"), strings.Contains(marks, "~"), strings.Contains(marks, "?")
		t.cols = append(t.cols, c)
	}
	return t
}

// add takes as many cells as there are columns.
func (t *table) add(cells ...string) {
	if len(cells) != len(t.cols) {
		panic(fmt.Sprintf("console: %d cells in a row of %d", len(cells), len(t.cols)))
	}
	for i := range cells {
		cells[i] = clean(cells[i])
	}
	t.rows = append(t.rows, cells)
}

// widths gives each column its width; 0 is a column that is left out. No bound is
// a width of 0.
func (t *table) widths(width int) []int {
	w := make([]int, len(t.cols))
	total, least := -gap, -gap // as wide as it likes, and as it must be
	for i, c := range t.cols {
		w[i] = len(c.head)
		for _, row := range t.rows {
			w[i] = max(w[i], len(row[i]))
		}
		total += w[i] + gap
		least += t.least(i, w[i], enough) + gap
	}
	if width == 0 {
		return w
	}
	for i := len(w) - 1; i >= 0 && least > width; i-- {
		if t.cols[i].spare {
			total -= w[i] + gap
			least -= t.least(i, w[i], enough) + gap
			w[i] = 0
		}
	}
	for total > width {
		widest := -1
		for i := range w {
			if w[i] > t.least(i, w[i], softest) && (widest < 0 || w[i] > w[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			break
		}
		w[widest]--
		total--
	}
	return w
}

// least is how many of w cells column i must have if soft ones must have soft.
func (t *table) least(i, w, soft int) int {
	if !t.cols[i].soft {
		return w
	}
	return min(w, max(soft, len(t.cols[i].head)))
}

// lines are the head and the rows, without blanks at their ends, and not longer
// than width if that is not 0.
func (t *table) lines(width int) []string {
	w := t.widths(width)
	heads := make([]string, len(t.cols))
	for i, c := range t.cols {
		heads[i] = c.head
	}
	lines := make([]string, 0, 1+len(t.rows))
	for _, cells := range append([][]string{heads}, t.rows...) {
		line := t.line(w, cells)
		if width > 0 && len(line) > width {
			line = line[:width]
		}
		lines = append(lines, line)
	}
	return lines
}

func (t *table) line(w []int, cells []string) string {
	var b strings.Builder
	for i, cell := range cells {
		if w[i] == 0 {
			continue
		}
		if b.Len() > 0 {
			b.WriteString(strings.Repeat(" ", gap))
		}
		cell = shorten(cell, w[i])
		if t.cols[i].right {
			fmt.Fprintf(&b, "%*s", w[i], cell)
		} else {
			fmt.Fprintf(&b, "%-*s", w[i], cell)
		}
	}
	return strings.TrimRight(b.String(), " ")
}

// print writes the table.
func (t *table) print(o out) {
	for _, line := range t.lines(o.width) {
		fmt.Fprintln(o, line)
	}
}

// shorten leaves out the middle of clean text that is longer than width: the end
// of an address, its port, says as much as the start.
func shorten(s string, width int) string {
	if len(s) <= width {
		return s
	}
	if width <= 1 {
		return s[:max(0, width)]
	}
	tail := (width - 1) * 2 / 5
	return s[:width-1-tail] + "~" + s[len(s)-tail:]
}

// pairs prints names and values, one a line; those without a value are left out.
func pairs(w io.Writer, list ...[2]string) {
	widest := 0
	for _, p := range list {
		widest = max(widest, len(p[0]))
	}
	for _, p := range list {
		if p[1] != "" {
			fmt.Fprintf(w, "%-*s  %s\n", widest, p[0], clean(p[1]))
		}
	}
}
