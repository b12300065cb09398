package admin

import (
	"bufio"
	"errors"
	"net/http"
	"runtime"
	"strconv"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
)

// maxScrapes bounds how many expositions are in memory at once; others wait.
const maxScrapes = 2

// exposition makes what a scrape reads, from one snapshot of the source. It
// gives families to the encoder itself: a registry sorts, hashes and compares every
// series in every scrape, and promhttp has every name looked at for characters to be escaped. What
// they would find a test finds (TestMetricsAreWellFormed).
type exposition struct {
	std    *prometheus.Registry // the Go runtime and the process
	turns  chan struct{}
	sheets sync.Pool // of *sheet
}

func newExposition() *exposition {
	x := &exposition{std: prometheus.NewRegistry(), turns: make(chan struct{}, maxScrapes)}
	x.std.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return x
}

// metrics answers in the format that the scraper asks for. It does not compress:
// the scraper is on this host.
func (s *Server) metrics(w http.ResponseWriter, r *http.Request) error {
	x := s.scrapes
	select {
	case x.turns <- struct{}{}:
		defer func() { <-x.turns }()
	case <-r.Context().Done():
		return r.Context().Err()
	}
	families, err := x.std.Gather()
	if err != nil {
		return err
	}
	sheet, _ := x.sheets.Get().(*sheet)
	if sheet == nil {
		sheet = newSheet()
	}
	defer func() {
		sheet.clear()
		x.sheets.Put(sheet)
	}()
	sheet.fill(s.source)
	format := expfmt.NegotiateAccept(r.Header, expfmt.DefaultOpenMetricsAcceptedFormats()...)
	w.Header().Set("Content-Type", string(format))
	out := bufio.NewWriterSize(newDeadlineWriter(w), 64<<10)
	enc := expfmt.NewEncoder(out, format.WithEscapingScheme(model.NoEscaping)) // no name needs it
	for _, f := range append(families, sheet.written()...) {
		err = errors.Join(err, enc.Encode(f))
	}
	if end, ok := enc.(expfmt.Closer); ok {
		err = errors.Join(err, end.Close())
	}
	if errors.Join(err, out.Flush()) != nil {
		panic(http.ErrAbortHandler) // the client sees that the end is missing
	}
	return nil
}

// fill writes one snapshot.
func (s *sheet) fill(of Source) {
	source := snapshotOf(of)
	st, c := source.Status(), source.Counters()
	s.add(buildInfo, 1, s.labels(buildInfo, st.Version, runtime.Version()))
	s.add(ready, boolValue(st.State == api.StateReady), nil)
	s.add(configInfo, 1, s.labels(configInfo, st.Config.Hash))
	s.add(reloads, float64(c.Reloads), s.labels(reloads, "success"))
	s.add(reloads, float64(c.FailedReloads), s.labels(reloads, "failure"))
	s.add(lastReload, boolValue(st.Config.Failed == nil), nil)
	s.add(reloadTime, float64(st.Config.Loaded.UnixMilli())/1e3, nil)
	s.traffic(source, &c)
	s.groups(source.Groups())
	s.engine(&st, &c)
}

// traffic is of listeners and flows.
func (s *sheet) traffic(source Observer, c *Counters) {
	for _, l := range source.Listeners() {
		of := s.labels(listenerOpen, l.Name)
		s.add(listenerOpen, boolValue(l.State == "open"), of)
		s.add(listenerFlows, float64(l.Begun), of)
	}
	for _, r := range c.Refused {
		s.add(refusals, float64(r.N), s.labels(refusals, r.Listener, r.Reason))
	}
	s.add(acceptErrors, float64(c.AcceptErrors), nil)
	s.add(acceptPauses, float64(c.AcceptPauses), nil)
	up, down := s.pair("direction", "up"), s.pair("direction", "down")
	for i := range c.Series {
		v := &c.Series[i]
		of := s.labels(flowsOpen, v.Listener, v.Route, v.Group, v.Member)
		s.add(flowsOpen, float64(v.Open), of)
		for _, e := range v.Ended {
			s.add(flowsEnded, float64(e.N), s.and(of, s.pair("cause", e.Name)))
		}
		s.add(flowBytes, float64(v.BytesUp), s.and(of, up))
		s.add(flowBytes, float64(v.BytesDown), s.and(of, down))
		if v.DatagramsUp != 0 || v.DatagramsDown != 0 { // streams have none, ever
			s.add(flowDatagrams, float64(v.DatagramsUp), s.and(of, up))
			s.add(flowDatagrams, float64(v.DatagramsDown), s.and(of, down))
		}
	}
	for i := range c.Times {
		v := &c.Times[i]
		of := s.labels(connectTime, v.Listener, v.Route, v.Group)
		s.addHistogram(connectTime, &v.Connect, of)
		s.addHistogram(firstByteTime, &v.FirstByte, of)
		s.addHistogram(flowTime, &v.Life, of)
	}
}

func (s *sheet) groups(groups []api.Group) {
	for _, g := range groups {
		of := s.labels(groupRetries, g.Name)
		s.add(groupRetries, float64(g.Retries), of)
		s.add(queueSize, float64(g.Queue.Size), of)
		s.add(queueFlows, float64(g.Queue.Flows), of)
		s.add(queuedFlows, float64(g.Queue.QueuedTotal), of)
		s.add(queueTimeouts, float64(g.Queue.TimedOut), of)
		s.add(queueFull, float64(g.Queue.Full), of)
		for i := range g.Lookups {
			l := &g.Lookups[i]
			of := s.labels(lookupSuccess, g.Name, l.Name)
			s.add(lookupSuccess, boolValue(l.Error == "" && !l.Time.IsZero()), of)
			s.add(lookupMembers, float64(l.Members), of)
			s.add(lookupFailures, float64(l.Failures), of)
		}
		states := map[string]int{}
		for i := range g.Members {
			m := &g.Members[i]
			states[m.State]++
			of := s.labels(memberUp, g.Name, m.Name, m.Address)
			s.add(memberUp, boolValue(m.Available), of)
			s.add(memberWeight, float64(m.Weight), of)
			s.add(memberConnects, float64(m.Connects), of)
			s.add(memberFailures, float64(m.Failures), of)
			s.add(memberConnectTime, m.ConnectSeconds, of)
		}
		for _, state := range api.States {
			s.add(groupMembers, float64(states[state]), s.labels(groupMembers, g.Name, state))
		}
	}
}

// engine is of loops and resources.
func (s *sheet) engine(st *api.Status, c *Counters) {
	for i, l := range st.Loops {
		of := s.labels(loopFlows, strconv.Itoa(i))
		s.add(loopFlows, float64(l.Flows), of)
		s.add(loopEvents, float64(l.Events), of)
		s.add(loopBusy, l.Busy, of)
		s.add(loopWaits, float64(l.Waits), of)
		s.add(loopWakeups, float64(l.Wakeups), of)
		s.add(loopLongest, l.LongestTurn, of)
	}
	for _, p := range st.Paths {
		s.add(flowDirections, float64(p.Directions), s.labels(flowDirections, p.Path, p.Why))
	}
	for _, d := range c.DatagramDrops {
		s.add(datagramsDropped, float64(d.N), s.labels(datagramsDropped, d.Name))
	}
	for _, p := range c.Pools {
		of := s.labels(poolGets, p.Name)
		s.add(poolGets, float64(p.Gets), of)
		s.add(poolAllocations, float64(p.News), of)
		s.add(poolIdle, float64(p.Kept), of)
		s.add(poolBuffers, float64(p.Live), of)
	}
	for _, d := range c.LogLinesDropped {
		s.add(logLinesDropped, float64(d.N), s.labels(logLinesDropped, d.Name))
	}
	r := &st.Resources
	for _, v := range []struct {
		m metric
		n int64
	}{
		{splicedBytes, c.BytesSpliced}, {droppedBytes, c.BytesDropped},
		{pipesOpen, r.PipesOpen}, {pipesLeased, r.PipesLeased}, {pipesLimit, r.PipesMax}, {pipesRefused, r.PipesRefused},
		{datagramsLost, r.DatagramsLost}, {gsoMessages, c.Runs}, {gsoFallbacks, r.GSOFallbacks}, {groMessages, c.Supers},
		{icmpErrors, c.ICMPErrors}, {restingSockets, c.Resting}, {restingClosedEarly, c.RestsCut}, {datagramHeldBytes, r.DatagramHeldBytes},
	} {
		s.add(v.m, float64(v.n), nil)
	}
}

func boolValue(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
