package admin

import (
	dto "github.com/prometheus/client_model/go"

	"github.com/penstock/penstock/cmd/penstock/internal/account"
)

// metric is a metric of items of type T: how it is described, and its value for one item.
type metric[T any] struct {
	name, help string
	kind       dto.MetricType
	value      func(*T) float64            // of a counter or gauge
	histogram  func(*T) *account.Histogram // of a histogram
}

func counter[T any](name, help string, value func(*T) float64) metric[T] {
	return metric[T]{name: name, help: help, kind: dto.MetricType_COUNTER, value: value}
}

func gauge[T any](name, help string, value func(*T) float64) metric[T] {
	return metric[T]{name: name, help: help, kind: dto.MetricType_GAUGE, value: value}
}

func histogram[T any](name, help string, value func(*T) *account.Histogram) metric[T] {
	return metric[T]{name: name, help: help, kind: dto.MetricType_HISTOGRAM, histogram: value}
}

// metricSet is a set of metrics of the same items, which share their labels.
type metricSet[T any] struct {
	labels  []string
	each    func(*state, func(*T, labelValues)) // calls the function with every item
	metrics []metric[T]
}

// labelValues are the values of the labels of a set. It is an array so that passing it does
// not allocate.
type labelValues [maxLabels]string

const maxLabels = 5

// metricInfo describes a metric, in an exposition and in docs/metrics.md.
type metricInfo struct {
	name, help string
	kind       dto.MetricType
	labels     []string
}

// anySet is a metricSet of any type of items.
type anySet interface {
	describe() []metricInfo
	// collect adds the series of the set to e. Its metrics are the families from first on.
	collect(e *exposition, first int, s *state)
}

func (m *metricSet[T]) describe() (list []metricInfo) {
	for _, x := range m.metrics {
		list = append(list, metricInfo{x.name, x.help, x.kind, m.labels})
	}
	return list
}

func (m *metricSet[T]) collect(e *exposition, first int, s *state) {
	m.each(s, func(item *T, values labelValues) {
		labels := e.labels(m.labels, &values)
		for i := range m.metrics {
			if x := &m.metrics[i]; x.histogram != nil {
				e.addHistogram(first+i, x.histogram(item), labels)
			} else {
				e.add(first+i, x.value(item), labels)
			}
		}
	})
}

// descriptions returns all metrics of the daemon, in the order of docs/metrics.md.
func descriptions() (list []metricInfo) {
	for _, m := range metricSets {
		list = append(list, m.describe()...)
	}
	return list
}
