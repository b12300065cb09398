package console

import (
	"fmt"
	"io"
	"strings"
)

// table is text in columns. Cells are made printable when they are added.
type table struct {
	cols []column
	rows [][]string
}

// column is a column of a table. If the table is wider than the terminal, optional columns
// are omitted, the last one first, as long as shrinking columns would have less than
// preferredWidth cells. Then those shrink, down to minShrunk cells.
type column struct {
	head                     string
	right, shrinks, optional bool
}

const (
	minShrunk      = 8
	preferredWidth = 21 // an IPv4 address with its port
	gap            = 2  // cells between columns
)

// newTable returns a table with the given column heads. A head may begin with ">" to align
// its column to the right, "~" to let it shrink, and "?" to make it optional.
func newTable(heads ...string) *table {
	t := new(table)
	for _, h := range heads {
		c := column{head: strings.TrimLeft(h, ">~?")}
		marks := h[:len(h)-len(c.head)]
		c.right, c.shrinks, c.optional = strings.Contains(marks, ">"), strings.Contains(marks, "~"), strings.Contains(marks, "?")
		t.cols = append(t.cols, c)
	}
	return t
}

// add adds a row, which has one cell per column.
func (t *table) add(cells ...string) {
	if len(cells) != len(t.cols) {
		panic(fmt.Sprintf("console: %d cells in a row of %d", len(cells), len(t.cols)))
	}
	for i := range cells {
		cells[i] = printable(cells[i])
	}
	t.rows = append(t.rows, cells)
}

// widths returns the width of each column for a terminal of the given width; 0 means no
// limit. The width of an omitted column is 0.
func (t *table) widths(width int) []int {
	w := make([]int, len(t.cols))
	total, least := -gap, -gap // preferred width, and the least possible
	for i, c := range t.cols {
		w[i] = len(c.head)
		for _, row := range t.rows {
			w[i] = max(w[i], len(row[i]))
		}
		total += w[i] + gap
		least += t.least(i, w[i], preferredWidth) + gap
	}
	if width == 0 {
		return w
	}
	for i := len(w) - 1; i >= 0 && least > width; i-- {
		if t.cols[i].optional {
			total -= w[i] + gap
			least -= t.least(i, w[i], preferredWidth) + gap
			w[i] = 0
		}
	}
	for total > width {
		widest := -1
		for i := range w {
			if w[i] > t.least(i, w[i], minShrunk) && (widest < 0 || w[i] > w[widest]) {
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

// hidden returns the heads of the columns that do not fit into width, if that is not 0.
func (t *table) hidden(width int) (heads []string) {
	if width == 0 {
		return nil
	}
	end := -gap
	for i, w := range t.widths(width) {
		if w > 0 {
			end += gap + w
		}
		if w == 0 || end > width {
			heads = append(heads, t.cols[i].head)
		}
	}
	return heads
}

// least returns the least width of column i, which is w cells wide, if shrinking columns
// need at least minimum cells.
func (t *table) least(i, w, minimum int) int {
	if !t.cols[i].shrinks {
		return w
	}
	return min(w, max(minimum, len(t.cols[i].head)))
}

// lines returns the head and the rows, without trailing blanks, and not longer than width
// if that is not 0.
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

// print prints the table.
func (t *table) print(o out) {
	for _, line := range t.lines(o.width) {
		fmt.Fprintln(o, line)
	}
	if hidden := t.hidden(o.width); len(hidden) > 0 {
		fmt.Fprintf(o, "(hidden at this width: %s)\n", strings.Join(hidden, ", "))
	}
}

// shorten replaces the middle of printable text that is longer than width. The end of an
// address, its port, is as important as the start.
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

// printPairs prints names and values, one pair per line. It omits those without a value.
func printPairs(w io.Writer, list ...[2]string) {
	widest := 0
	for _, p := range list {
		widest = max(widest, len(p[0]))
	}
	for _, p := range list {
		if p[1] != "" {
			fmt.Fprintf(w, "%-*s  %s\n", widest, p[0], printable(p[1]))
		}
	}
}
