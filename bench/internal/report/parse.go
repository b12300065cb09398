package report

import (
	"bufio"
	"io"
	"strconv"
	"strings"
)

// Round is one line of a result: a benchmark's keys, such as load=idle, and its
// figures by unit.
type Round struct {
	Keys    map[string]string
	Figures map[string]float64
}

// Result is a file of results.
type Result struct {
	Config map[string]string // the lines "key: value", such as commit
	Rounds []Round
}

// Parse reads the Go benchmark format (golang.org/design/14313-benchmark-format) as far as the
// programs of this module write it. Every other line is a comment.
func Parse(r io.Reader) (Result, error) {
	res := Result{Config: make(map[string]string)}
	sc := bufio.NewScanner(r)
	for sc.Scan() {
		line := sc.Text()
		if rest, ok := strings.CutPrefix(line, "Benchmark"); ok {
			if round, ok := parseRound(rest); ok {
				res.Rounds = append(res.Rounds, round)
			}
			continue
		}
		if key, value, ok := strings.Cut(line, ": "); ok && key != "" && !strings.ContainsAny(key, " #\t") {
			res.Config[key] = strings.TrimSpace(value)
		}
	}
	return res, sc.Err()
}

// parseRound reads NAME/key=value/... ITERATIONS VALUE UNIT VALUE UNIT ...
func parseRound(line string) (Round, bool) {
	fields := strings.Fields(line)
	if len(fields) < 4 || len(fields)%2 != 0 {
		return Round{}, false
	}
	r := Round{Keys: make(map[string]string), Figures: make(map[string]float64)}
	for part := range strings.SplitSeq(fields[0], "/") {
		if key, value, ok := strings.Cut(part, "="); ok {
			r.Keys[key] = value
		}
	}
	for i := 2; i < len(fields); i += 2 {
		v, err := strconv.ParseFloat(fields[i], 64)
		if err != nil {
			return Round{}, false
		}
		r.Figures[fields[i+1]] = v
	}
	return r, true
}

// Column returns one figure of all rounds that have the given keys.
func (r Result) Column(unit string, keys map[string]string) (xs []float64) {
rounds:
	for _, round := range r.Rounds {
		for k, v := range keys {
			if round.Keys[k] != v {
				continue rounds
			}
		}
		if v, ok := round.Figures[unit]; ok {
			xs = append(xs, v)
		}
	}
	return xs
}
