package admin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"runtime/metrics"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
)

// healthz answers that the process is alive.
func (s *Server) healthz(w http.ResponseWriter, _ *http.Request) error {
	reply(w, api.Ready{State: "alive"})
	return nil
}

// readyz answers whether the daemon takes new flows.
func (s *Server) readyz(w http.ResponseWriter, _ *http.Request) error {
	state := s.source.Status().State
	if state != api.StateReady {
		return api.NewProblem(http.StatusServiceUnavailable, "the daemon is "+state, "")
	}
	reply(w, api.Ready{State: state})
	return nil
}

func (s *Server) status(w http.ResponseWriter, r *http.Request) error {
	st := s.fullStatus()
	st.Access = "read"
	if s.authorize(r, full) == nil {
		st.Access = "full"
	}
	reply(w, st)
	return nil
}

// fullStatus returns the whole status, with what the source leaves to the server.
func (s *Server) fullStatus() api.Status {
	source := snapshotOf(s.source)
	st := source.Status()
	st.Started = s.config.Started
	st.PID = os.Getpid()
	st.Time = time.Now()
	st.Uptime = st.Time.Sub(st.Started).Seconds()
	st.LastEvent = s.config.Events.Last()
	process(&st.Resources)
	st.Loops = nonNil(st.Loops)
	st.Paths = nonNil(st.Paths)
	st.Refusals = nonNil(st.Refusals)
	st.Overload.Resources, st.Overload.Actions = nonNil(st.Overload.Resources), nonNil(st.Overload.Actions)
	nonNilLatency(&st.Latency)
	if st.Keeper != nil {
		nonNilKeeper(st.Keeper)
	}
	st.Listeners, st.Groups = []api.ListenerSummary{}, []api.GroupSummary{}
	for _, l := range source.Listeners() {
		st.Listeners = append(st.Listeners, api.ListenerSummary{Name: l.Name, Numbers: l.Numbers})
	}
	for _, g := range source.Groups() {
		sum := api.GroupSummary{Name: g.Name, Members: len(g.Members), Changed: g.Changed, Queued: g.Queue.Flows, Numbers: g.Numbers}
		for _, l := range g.Lookups {
			if l.Error != "" && (sum.LookupError == "" || l.GoodTime.Before(sum.LookupGoodTime)) {
				sum.LookupError, sum.LookupGoodTime = l.Name+": "+l.Error, l.GoodTime
			}
		}
		for i := range g.Members {
			if g.Members[i].Available {
				sum.Up++
			}
		}
		st.Groups = append(st.Groups, sum)
	}
	return st
}

// nonNilLatency replaces the nil lists of l, so that JSON has [] instead of null.
func nonNilLatency(l *api.Latency) {
	for _, h := range []*api.Histogram{&l.Connect, &l.FirstByte} {
		h.Bounds, h.Counts = nonNil(h.Bounds), nonNil(h.Counts)
	}
}

// nonNilKeeper replaces the nil lists of k in the same way.
func nonNilKeeper(k *api.Keeper) {
	k.Starts, k.Total.Lost = nonNil(k.Starts), nonNil(k.Total.Lost)
	if k.Last != nil {
		last := *k.Last // which others read
		last.Lost = nonNil(last.Lost)
		k.Last = &last
	}
}

// nonNil returns list, or an empty list if it is nil: JSON then has [] instead of null.
func nonNil[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// process sets the fields that the process knows itself.
func process(r *api.Resources) {
	// Since Linux 6.2 (f1f1f2569901) the size of this folder is the number of open
	// descriptors; before, it was 0. Reading the folder would take long if there are many.
	if info, err := os.Stat("/proc/self/fd"); err == nil {
		r.FDs = info.Size()
	}
	r.Goroutines = runtime.NumGoroutine()
	heap := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(heap)
	if heap[0].Value.Kind() == metrics.KindUint64 {
		r.HeapBytes = int64(heap[0].Value.Uint64())
	}
}

// sampleText returns one event of the stream.
func (s *Server) sampleText() []byte {
	b, err := json.Marshal(s.fullStatus().Sample)
	if err != nil { // a sample is strings and numbers
		panic(err)
	}
	return slices.Concat([]byte("data: "), b, []byte("\n\n"))
}

func (s *Server) events(w http.ResponseWriter, r *http.Request) error {
	after := uint64(0)
	if text := r.URL.Query().Get("after"); text != "" {
		var err error
		if after, err = strconv.ParseUint(text, 10, 64); err != nil {
			return bad("after: "+api.Quote(text), "the id of an event")
		}
	}
	reply(w, s.config.Events.After(after))
	return nil
}

func (s *Server) level(w http.ResponseWriter, _ *http.Request) error {
	reply(w, api.Level{Level: s.source.Level()})
	return nil
}

func (s *Server) setLevel(w http.ResponseWriter, r *http.Request) error {
	var l api.Level
	if err := body(r, &l); err != nil {
		return err
	}
	if !slices.Contains(api.Levels, l.Level) {
		return bad("level: "+api.Quote(l.Level), strings.Join(api.Levels, ", "))
	}
	s.source.SetLevel(l.Level)
	s.event(r, "info", "log", "daemon", "the level of the log was set to "+l.Level)
	return s.level(w, r)
}

func (s *Server) draining(w http.ResponseWriter, _ *http.Request) error {
	reply(w, s.source.Draining())
	return nil
}

func (s *Server) drain(w http.ResponseWriter, r *http.Request) error {
	s.source.Drain()
	s.event(r, "info", "drain", "daemon", fmt.Sprintf("drain requested; open flows: %d", s.source.Draining().Flows))
	return s.draining(w, r)
}

// event records what an operator did, and who it was.
func (s *Server) event(r *http.Request, level, kind, subject, message string) {
	if s.config.Events != nil {
		s.config.Events.Add(api.Event{Level: level, Kind: kind, Subject: subject, Message: message, By: Actor(r.Context())})
	}
}
