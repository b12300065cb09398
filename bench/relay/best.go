//go:build linux

package main

import (
	"fmt"
	"os"
	"strings"
)

// bestRow is a row of bench/best.txt: a load, and the commit that was best under it.
type bestRow struct {
	load, commit string
	date         string
	ratio, peer  string // its figure over that of a named peer, then; "" if it was not compared with one
}

// String returns the commit with what is known about it.
func (r bestRow) String() string {
	switch {
	case r.date == "":
		return r.commit
	case r.peer == "":
		return fmt.Sprintf("%s of %s", r.commit, r.date)
	}
	return fmt.Sprintf("%s of %s, which was %s of %s", r.commit, r.date, r.ratio, r.peer)
}

// readBest reads the file. Its lines are LOAD COMMIT DATE RATIO PEER, the last two of them "-" if unknown; those that begin with # are
// comments.
func readBest(path string) (rows []bestRow, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	n := 0
	for line := range strings.Lines(string(text)) {
		n++
		f := strings.Fields(line)
		if len(f) == 0 || f[0][0] == '#' {
			continue
		}
		if len(f) != 5 {
			return nil, fmt.Errorf("%s:%d: want LOAD COMMIT DATE RATIO PEER, such as bulk1m 4f81741 2026-11-21 1.06 haproxy", path, n)
		}
		r := bestRow{load: f[0], commit: f[1], date: f[2]}
		if f[4] != "-" {
			r.ratio, r.peer = f[3], f[4]
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// rowsOf returns what is to be compared: all rows of the file, or those of some loads; with a base, whatever
// the file has, against it.
func rowsOf(best []bestRow, loads, base string) (rows []bestRow, err error) {
	of := make(map[string]bestRow)
	var texts []string
	for _, r := range best {
		of[r.load] = r
		texts = append(texts, r.load)
	}
	if loads != "" {
		texts = strings.Split(loads, ",")
	}
	for _, text := range texts {
		r, ok := of[text]
		switch {
		case base != "":
			r = bestRow{load: text, commit: base}
		case !ok:
			return nil, fmt.Errorf("compare: bench/best.txt has no row %s: want -base COMMIT", text)
		}
		rows = append(rows, r)
	}
	return rows, nil
}
