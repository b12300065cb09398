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

// walk calls each with every open flow that matches a filter, until each returns false.
// The flow is valid during the call. It returns how many flows matched and how many were
// examined. At most maxListings walks run at once; others wait.
func (s *Server) walk(ctx context.Context, f *api.Filter, each func(*api.Flow) bool) (matched, total int64, err error) {
	end, err := s.listings.take(ctx, nil)
	if err != nil {
		return 0, 0, err
	}
	defer end()
	return s.walkNow(ctx, f, each)
}

// walkNow is walk for a caller that has waited for its turn.
func (s *Server) walkNow(ctx context.Context, f *api.Filter, each func(*api.Flow) bool) (matched, total int64, err error) {
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

// flows lists open flows. A listing with a limit is collected first. One without is
// written while the flows are read, so that its memory does not depend on their number.
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
	if err := rejectUnknown(q); err != nil {
		return err
	}
	if p.Limit == 0 {
		s.everyFlow(w, r, &f)
		return nil
	}
	list, err := s.listPage(r.Context(), &f, &p)
	if err != nil {
		return err
	}
	reply(w, list)
	return nil
}

// everyFlow writes a listing without a limit. On an error it breaks the connection, so
// that the client sees that the listing is incomplete.
func (s *Server) everyFlow(w http.ResponseWriter, r *http.Request, f *api.Filter) {
	end, err := s.listings.take(r.Context(), connOf(r))
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer end()
	w.Header().Set("Content-Type", "application/json")
	out := bufio.NewWriterSize(newDeadlineWriter(w), 64<<10)
	sep := `{"flows":[`
	enc := json.NewEncoder(out)
	matched, total, err := s.walkNow(r.Context(), f, func(flow *api.Flow) bool {
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

// deadlineWriter writes a long answer. It gives each Write its own deadline.
type deadlineWriter struct {
	w http.ResponseWriter
	c *http.ResponseController
}

func newDeadlineWriter(w http.ResponseWriter) *deadlineWriter {
	return &deadlineWriter{w: w, c: http.NewResponseController(w)}
}

func (d *deadlineWriter) Write(b []byte) (int, error) {
	d.c.SetWriteDeadline(time.Now().Add(writeTime))
	return d.w.Write(b)
}

// listPage collects a listing with a limit.
func (s *Server) listPage(ctx context.Context, f *api.Filter, p *api.Page) (l api.Flows, err error) {
	var before []flowSize
	if p.Sort == "rate" {
		if before, err = s.flowSizes(ctx, f, p.Window); err != nil {
			return l, err
		}
	}
	top := newTopFlows(p.Limit, order(p.Sort))
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
	if p.Sort == "" && top.more {
		l.Next = strconv.FormatUint(l.Flows[len(l.Flows)-1].ID, 10)
	}
	return l, nil
}

// order returns the comparison function of a sort key: greatest first, then by id.
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

// flowSize is the number of bytes that a flow had moved at the start of a window.
type flowSize struct {
	id    uint64
	bytes int64
}

// flowSizes returns the size of each flow, in the order of ids, and then waits for window.
// It takes 16 bytes per flow.
func (s *Server) flowSizes(ctx context.Context, f *api.Filter, window time.Duration) ([]flowSize, error) {
	var list []flowSize
	_, _, err := s.walk(ctx, f, func(flow *api.Flow) bool {
		list = append(list, flowSize{flow.ID, flow.Bytes()})
		return true
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(list, func(a, b flowSize) int { return cmp.Compare(a.id, b.id) })
	select {
	case <-time.After(window):
		return list, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// rate returns the rate of a flow since its size was taken, or since its start if it is
// not in before.
func rate(before []flowSize, flow *api.Flow, passed time.Duration) float64 {
	i, known := slices.BinarySearchFunc(before, flow.ID, func(s flowSize, id uint64) int { return cmp.Compare(s.id, id) })
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
		return flowNotFound(id)
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
		return flowNotFound(id)
	}
	s.event(r, "info", "kill", strconv.FormatUint(id, 10), "the flow was ended")
	reply(w, api.Killed{Killed: 1})
	return nil
}

// killFlows ends the flows that match a filter. The filter must not be empty: to end all
// flows there is the drain.
func (s *Server) killFlows(w http.ResponseWriter, r *http.Request) error {
	q, err := query(r)
	if err != nil {
		return err
	}
	f, err := api.ParseFilter(q)
	if err != nil {
		return err
	}
	if err := rejectUnknown(q); err != nil {
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
	s.event(r, "info", "kill", values.Encode(), fmt.Sprintf("flows ended: %d", n))
	reply(w, api.Killed{Killed: n})
	return nil
}

const filterNames = "source, listener, route, group, member, state, kind, path, min_age, max_age, min_idle, min_bytes"

// query returns the parameters of a request. A parameter may occur once.
func query(r *http.Request) (url.Values, error) {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, bad("the query: "+err.Error(), "NAME=VALUE&NAME=VALUE, percent-encoded")
	}
	for name, values := range q {
		if len(values) > 1 {
			return nil, bad(api.Quote(name)+" occurs more than once", "each parameter once")
		}
	}
	return q, nil
}

// rejectUnknown returns an error if q still has a parameter.
func rejectUnknown(q url.Values) error {
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

func flowNotFound(id uint64) error {
	return api.NotFound("open flow", strconv.FormatUint(id, 10), "an id of GET /v1/flows")
}
