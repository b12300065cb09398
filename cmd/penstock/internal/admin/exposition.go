package admin

import (
	dto "github.com/prometheus/client_model/go"

	"github.com/penstock/penstock/cmd/penstock/internal/account"
)

// exposition holds the metrics of one scrape. Its memory is reused by later scrapes, so that
// even a scrape of many members allocates little.
type exposition struct {
	families []*dto.MetricFamily // in the order of descriptions
	samples  arena[sample]
	pairs    arena[labelPair]
	lists    arena[[maxLabels]*dto.LabelPair]
}

// sample is one series.
type sample struct {
	metric  dto.Metric
	counter dto.Counter
	gauge   dto.Gauge
	value   float64
}

// labelPair is one label and the memory of its strings.
type labelPair struct {
	label       dto.LabelPair
	name, value string
}

func newExposition() *exposition {
	e := new(exposition)
	for _, d := range descriptions() {
		e.families = append(e.families, &dto.MetricFamily{Name: &d.name, Help: &d.help, Type: &d.kind})
	}
	return e
}

// fill adds all metrics of the daemon.
func (e *exposition) fill(source Source) {
	s := readState(source)
	first := 0
	for _, m := range metricSets {
		m.collect(e, first, s)
		first += len(m.describe())
	}
}

// clear removes all series, and makes their memory available again.
func (e *exposition) clear() {
	for _, f := range e.families {
		f.Metric = f.Metric[:0]
	}
	e.samples.used, e.pairs.used, e.lists.used = 0, 0, 0
}

// filled returns the families that have series.
func (e *exposition) filled() (list []*dto.MetricFamily) {
	for _, f := range e.families {
		if len(f.Metric) > 0 {
			list = append(list, f)
		}
	}
	return list
}

// labels returns labels with the given names and values, for one or more series.
func (e *exposition) labels(names []string, values *labelValues) []*dto.LabelPair {
	if len(names) == 0 {
		return nil
	}
	list := e.lists.next()[:0]
	for i, name := range names {
		p := e.pairs.next()
		p.name, p.value = name, values[i]
		p.label.Name, p.label.Value = &p.name, &p.value
		list = append(list, &p.label)
	}
	return list
}

// add adds one series to a family.
func (e *exposition) add(family int, value float64, labels []*dto.LabelPair) {
	s := e.samples.next()
	s.value = value
	s.metric.Label, s.metric.Counter, s.metric.Gauge, s.metric.Histogram = labels, nil, nil, nil
	f := e.families[family]
	if f.GetType() == dto.MetricType_COUNTER {
		s.counter.Value = &s.value
		s.metric.Counter = &s.counter
	} else {
		s.gauge.Value = &s.value
		s.metric.Gauge = &s.gauge
	}
	f.Metric = append(f.Metric, &s.metric)
}

// addHistogram adds one histogram to a family. There are few, because members have none.
func (e *exposition) addHistogram(family int, h *account.Histogram, labels []*dto.LabelPair) {
	s := e.samples.next()
	s.metric.Label, s.metric.Counter, s.metric.Gauge = labels, nil, nil
	s.metric.Histogram = &dto.Histogram{SampleSum: new(h.Sum.Seconds()), SampleCount: new(uint64(h.Count))}
	total := uint64(0)
	for i, bound := range h.Bounds { // SampleCount includes the values above the last bound
		total += uint64(h.Counts[i])
		s.metric.Histogram.Bucket = append(s.metric.Histogram.Bucket, &dto.Bucket{UpperBound: new(bound.Seconds()), CumulativeCount: new(total)})
	}
	f := e.families[family]
	f.Metric = append(f.Metric, &s.metric)
}

// arena allocates values in chunks, which do not move. It reuses them after used was set to
// 0.
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
