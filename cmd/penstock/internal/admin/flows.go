package admin

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
)

// walk gives the flows that a filter chooses to each, and tells how many there
// were and how many were looked at. A few run at once, others wait for their turn.
// The flow is valid during the call; each returns false to end the walk.
func (s *Server) walk(ctx context.Context, f *api.Filter, each func(*api.Flow) bool) (matched, total int64, err error) {
	select {
	case s.walks <- struct{}{}:
		defer func() { <-s.walks }()
	case <-ctx.Done():
		return 0, 0, ctx.Err()
	}
	err = s.source.Flows(ctx, func(slice []api.Flow) bool {
		total += int64(len(slice))
		for i := range slice {
			if f.Match(&slice[i]) {
				matched++
				if !each(&slice[i]) {
					return false
				}
			}
		}
		return true
	})
	return matched, total, err
}

// flows lists. What is bounded is collected first; what is not is written while
// the engine is walked, so that memory does not depend on how many there are.
func (s *Server) flows(w http.ResponseWriter, r *http.Request) error {
	q, err := query(r)
	if err != nil {
		return err
	}
	f, err := api.ParseFilter(q)
	if err != nil {
		return err
	}
	p, err := api.ParsePage(q)
	if err != nil {
		return err
	}
	if err := nothingLeft(q); err != nil {
		return err
	}
	if p.Limit == 0 {
		s.everyFlow(w, r, &f)
		return nil
	}
	list, err := s.pageOf(r.Context(), &f, &p)
	if err != nil {
		return err
	}
	reply(w, list)
	return nil
}

// everyFlow writes a listing without a bound. When it breaks, the connection
// does too: the client sees that the end is missing.
func (s *Server) everyFlow(w http.ResponseWriter, r *http.Request, f *api.Filter) {
	w.Header().Set("Content-Type", "application/json")
	out := bufio.NewWriterSize(&patient{w: w, c: http.NewResponseController(w)}, 64<<10)
	sep := `{"flows":[`
	enc := json.NewEncoder(out)
	matched, total, err := s.walk(r.Context(), f, func(flow *api.Flow) bool {
		out.WriteString(sep)
		sep = ","
		return enc.Encode(flow) == nil
	})
	if matched == 0 {
		out.WriteString(sep)
	}
	fmt.Fprintf(out, "],\"matched\":%d,\"total\":%d}\n", matched, total)
	if out.Flush() != nil || err != nil {
		panic(http.ErrAbortHandler)
	}
}

// patient gives each piece of a long answer its own time.
type patient struct {
	w http.ResponseWriter
	c *http.ResponseController
}

func (p *patient) Write(b []byte) (int, error) {
	p.c.SetWriteDeadline(time.Now().Add(writeTime))
	return p.w.Write(b)
}

// pageOf collects a bounded listing.
func (s *Server) pageOf(ctx context.Context, f *api.Filter, p *api.Page) (l api.Flows, err error) {
	var before []sized
	if p.Sort == "rate" {
		if before, err = s.sizes(ctx, f, p.Window); err != nil {
			return l, err
		}
	}
	top := newTop(p.Limit, order(p.Sort))
	start := time.Now()
	l.Matched, l.Total, err = s.walk(ctx, f, func(flow *api.Flow) bool {
		if p.Sort == "rate" {
			flow.Rate = rate(before, flow, p.Window+time.Since(start))
		}
		if p.Sort != "" || flow.ID > p.Cursor {
			top.offer(flow)
		}
		return true
	})
	if err != nil {
		return l, err
	}
	l.Flows = top.sorted()
	if p.Sort == "" && top.refused {
		l.Next = strconv.FormatUint(l.Flows[len(l.Flows)-1].ID, 10)
	}
	return l, nil
}

// order returns the comparison of a sort: greatest first, and among equals the oldest id first.
func order(sort string) func(a, b *api.Flow) int {
	byID := func(a, b *api.Flow) int { return cmp.Compare(a.ID, b.ID) }
	switch sort {
	case "bytes":
		return func(a, b *api.Flow) int { return cmp.Or(cmp.Compare(b.Bytes(), a.Bytes()), byID(a, b)) }
	case "age":
		return func(a, b *api.Flow) int { return cmp.Or(cmp.Compare(b.Age, a.Age), byID(a, b)) }
	case "rate":
		return func(a, b *api.Flow) int { return cmp.Or(cmp.Compare(b.Rate, a.Rate), byID(a, b)) }
	}
	return byID
}

// sized is what a flow had moved when a window began.
type sized struct {
	id    uint64
	bytes int64
}

// sizes returns what each flow has moved, in the order of ids, and waits for the window: 16 bytes a flow.
func (s *Server) sizes(ctx context.Context, f *api.Filter, window time.Duration) ([]sized, error) {
	var list []sized
	_, _, err := s.walk(ctx, f, func(flow *api.Flow) bool {
		list = append(list, sized{flow.ID, flow.Bytes()})
		return true
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(list, func(a, b sized) int { return cmp.Compare(a.id, b.id) })
	select {
	case <-time.After(window):
		return list, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// rate is of a flow since its size was taken; of a flow that came in between, since its start.
func rate(before []sized, flow *api.Flow, passed time.Duration) float64 {
	i, known := slices.BinarySearchFunc(before, flow.ID, func(s sized, id uint64) int { return cmp.Compare(s.id, id) })
	moved := flow.Bytes()
	if known {
		moved -= before[i].bytes
	}
	return float64(max(moved, 0)) / passed.Seconds()
}

func (s *Server) flow(w http.ResponseWriter, r *http.Request) error {
	id, err := flowID(r)
	if err != nil {
		return err
	}
	f, ok := s.source.Flow(r.Context(), id)
	if !ok {
		return noFlow(id)
	}
	reply(w, f)
	return nil
}

func (s *Server) killFlow(w http.ResponseWriter, r *http.Request) error {
	id, err := flowID(r)
	if err != nil {
		return err
	}
	if s.source.Kill(r.Context(), []uint64{id}) == 0 {
		return noFlow(id)
	}
	s.event(r, "info", "kill", strconv.FormatUint(id, 10), "the flow was ended")
	reply(w, api.Killed{Killed: 1})
	return nil
}

// killFlows ends those that a filter chooses. None is no filter: all flows end by a drain.
func (s *Server) killFlows(w http.ResponseWriter, r *http.Request) error {
	q, err := query(r)
	if err != nil {
		return err
	}
	f, err := api.ParseFilter(q)
	if err != nil {
		return err
	}
	if err := nothingLeft(q); err != nil {
		return err
	}
	if f.Empty() {
		return bad("no filter: that would end every flow", "one of "+filterNames+"; or POST /v1/drain")
	}
	var ids []uint64
	if _, _, err = s.walk(r.Context(), &f, func(flow *api.Flow) bool {
		ids = append(ids, flow.ID)
		return true
	}); err != nil {
		return err
	}
	n := s.source.Kill(r.Context(), ids)
	values := f.Query()
	s.event(r, "info", "kill", values.Encode(), fmt.Sprintf("%d flows were ended", n))
	reply(w, api.Killed{Killed: n})
	return nil
}

const filterNames = "source, listener, route, group, member, state, kind, path, min_age, max_age, min_idle, min_bytes"

// query reads the parameters of a request, each at most once.
func query(r *http.Request) (url.Values, error) {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, bad("the query: "+err.Error(), "NAME=VALUE&NAME=VALUE, percent-encoded")
	}
	for name, values := range q {
		if len(values) > 1 {
			return nil, bad(api.Quote(name)+" is there more than once", "each parameter once")
		}
	}
	return q, nil
}

// nothingLeft refuses parameters that nobody has taken.
func nothingLeft(q url.Values) error {
	for name := range q {
		return bad("parameter "+api.Quote(name), filterNames+"; of a listing also sort, limit, cursor, window")
	}
	return nil
}

func flowID(r *http.Request) (uint64, error) {
	text := r.PathValue("id")
	id, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, bad("flow "+api.Quote(text), "the id of a flow, a number")
	}
	return id, nil
}

func noFlow(id uint64) error {
	return api.NotFound("open flow", strconv.FormatUint(id, 10), "an id of GET /v1/flows")
}
