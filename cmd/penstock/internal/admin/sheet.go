package admin

import dto "github.com/prometheus/client_model/go"

// sheet is where one exposition is written. Its memory is used again by the next
// one: a scrape of many members allocates next to nothing.
type sheet struct {
	families [metricCount]*dto.MetricFamily
	cells    arena[cell]
	pairs    arena[pair]
	lists    arena[[maxLabels]*dto.LabelPair]
}

// cell is one series.
type cell struct {
	metric  dto.Metric
	counter dto.Counter
	gauge   dto.Gauge
	value   float64
}

// pair is one label and the memory of its strings.
type pair struct {
	label       dto.LabelPair
	name, value string
}

const maxLabels = 5

func newSheet() *sheet {
	s := new(sheet)
	for i := range s.families {
		m := &table[i]
		s.families[i] = &dto.MetricFamily{Name: &m.name, Help: &m.help, Type: &m.kind}
	}
	return s
}

// clear makes room for the next exposition. The one before is gone then.
func (s *sheet) clear() {
	for _, f := range s.families {
		f.Metric = f.Metric[:0]
	}
	s.cells.used, s.pairs.used, s.lists.used = 0, 0, 0
}

// written are the families that have series.
func (s *sheet) written() (list []*dto.MetricFamily) {
	for _, f := range s.families {
		if len(f.Metric) > 0 {
			list = append(list, f)
		}
	}
	return list
}

// labels are values of the first labels of a metric. They may be shared by
// metrics that have the same ones.
func (s *sheet) labels(m metric, values ...string) []*dto.LabelPair {
	list := s.lists.next()[:0]
	for i, v := range values {
		list = append(list, s.pair(table[m].labels[i], v))
	}
	return list
}

// and is a list with one more label.
func (s *sheet) and(list []*dto.LabelPair, p *dto.LabelPair) []*dto.LabelPair {
	return append(append(s.lists.next()[:0], list...), p)
}

func (s *sheet) pair(name, value string) *dto.LabelPair {
	p := s.pairs.next()
	p.name, p.value = name, value
	p.label.Name, p.label.Value = &p.name, &p.value
	return &p.label
}

// add writes one series.
func (s *sheet) add(m metric, v float64, labels []*dto.LabelPair) {
	c := s.cells.next()
	c.value = v
	c.metric.Label, c.metric.Counter, c.metric.Gauge, c.metric.Histogram = labels, nil, nil, nil
	if table[m].kind == counter {
		c.counter.Value = &c.value
		c.metric.Counter = &c.counter
	} else {
		c.gauge.Value = &c.value
		c.metric.Gauge = &c.gauge
	}
	s.families[m].Metric = append(s.families[m].Metric, &c.metric)
}

// addHistogram writes one histogram. There are few: none is of a member.
func (s *sheet) addHistogram(m metric, h *Histogram, labels []*dto.LabelPair) {
	c := s.cells.next()
	c.metric.Label, c.metric.Counter, c.metric.Gauge = labels, nil, nil
	c.metric.Histogram = &dto.Histogram{SampleSum: &h.Sum}
	total := uint64(0)
	for i, n := range h.Counts {
		total += n
		if i < len(h.Bounds) { // what is above the last bound is in the count only
			c.metric.Histogram.Bucket = append(c.metric.Histogram.Bucket, &dto.Bucket{UpperBound: &h.Bounds[i], CumulativeCount: new(total)})
		}
	}
	c.metric.Histogram.SampleCount = &total
	s.families[m].Metric = append(s.families[m].Metric, &c.metric)
}

// arena gives out values in chunks, which stay where they are, and gives them out again
// when used is set back to 0.
type arena[T any] struct {
	chunks [][]T
	used   int
}

const arenaChunk = 1024

func (a *arena[T]) next() *T {
	at := a.used / arenaChunk
	if at == len(a.chunks) {
		a.chunks = append(a.chunks, make([]T, arenaChunk))
	}
	v := &a.chunks[at][a.used%arenaChunk]
	a.used++
	return v
}
