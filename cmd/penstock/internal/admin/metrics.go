package admin

import (
	"bufio"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// maxScrapes bounds the number of expositions in memory; further scrapes wait.
const maxScrapes = 2

// scrapes serves /metrics. It passes metric families to the encoder itself: a registry would
// sort, hash and compare every series in every scrape, and promhttp would check every name
// for characters to escape. TestMetricsAreWellFormed checks what they would.
type scrapes struct {
	process     *prometheus.Registry // the Go runtime and the process
	turns       *turns
	expositions sync.Pool // of *exposition
}

func newScrapes() *scrapes {
	return &scrapes{process: newProcess(), turns: newTurns(maxScrapes)}
}

func newProcess() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// metrics answers a scrape in the format and with the compression that it accepts.
func (s *Server) metrics(w http.ResponseWriter, r *http.Request) error {
	x := s.scrapes
	endTurn, err := x.turns.take(r.Context(), connOf(r))
	if err != nil {
		return err
	}
	defer endTurn()
	families, err := x.process.Gather()
	if err != nil {
		return err
	}
	e, _ := x.expositions.Get().(*exposition)
	if e == nil {
		e = newExposition()
	}
	defer func() {
		e.clear()
		x.expositions.Put(e)
	}()
	e.fill(s.source)
	format := expfmt.NegotiateAccept(r.Header, expfmt.DefaultOpenMetricsAcceptedFormats()...)
	w.Header().Set("Content-Type", string(format))
	w.Header().Set("Vary", "Accept, Accept-Encoding")
	var out io.Writer = newDeadlineWriter(w)
	var compressor *gzip.Writer
	if acceptsGzip(r.Header) {
		w.Header().Set("Content-Encoding", "gzip")
		if compressor, err = gzip.NewWriterLevel(out, gzip.BestSpeed); err != nil {
			return err
		}
		out = compressor
	}
	buffered := bufio.NewWriterSize(out, 64<<10)
	enc := expfmt.NewEncoder(buffered, format.WithEscapingScheme(model.NoEscaping)) // no name needs it
	for _, f := range append(families, e.filled()...) {
		err = errors.Join(err, enc.Encode(f))
	}
	if end, ok := enc.(expfmt.Closer); ok {
		err = errors.Join(err, end.Close())
	}
	err = errors.Join(err, buffered.Flush())
	if compressor != nil {
		err = errors.Join(err, compressor.Close())
	}
	if err != nil {
		panic(http.ErrAbortHandler) // the client sees that the answer is incomplete
	}
	return nil
}

// acceptsGzip reports whether a client asks for gzip (RFC 9110, 12.5.3). A quality of 0
// means that it does not.
func acceptsGzip(h http.Header) bool {
	for _, list := range h.Values("Accept-Encoding") {
		for coding := range strings.SplitSeq(list, ",") {
			name, params, _ := strings.Cut(coding, ";")
			if strings.EqualFold(strings.TrimSpace(name), "gzip") {
				quality, ok := strings.CutPrefix(strings.ReplaceAll(strings.ToLower(params), " ", ""), "q=")
				return !ok || strings.Trim(quality, "0.") != ""
			}
		}
	}
	return false
}

// A Gatherer gathers the metrics of a source for one who does not ask by HTTP.
type Gatherer struct {
	source     Source
	process    *prometheus.Registry
	exposition *exposition
}

// NewGatherer returns a Gatherer.
func NewGatherer(source Source) *Gatherer {
	return &Gatherer{source: source, process: newProcess(), exposition: newExposition()}
}

// Gather returns the metrics of the service, and those of this process, which begin anew in the next one. They are valid until it is
// called again.
func (g *Gatherer) Gather() (service, process []*dto.MetricFamily, err error) {
	process, err = g.process.Gather()
	g.exposition.clear()
	g.exposition.fill(g.source)
	return g.exposition.filled(), process, err
}
