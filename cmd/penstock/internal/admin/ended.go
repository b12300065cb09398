package admin

import (
	"net/http"
	"slices"
	"strconv"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
)

// defaultEnded is how many ended flows are listed where no limit is given.
const defaultEnded = 100

// ended lists the flows that ended last.
func (s *Server) ended(w http.ResponseWriter, r *http.Request) error {
	q, err := query(r)
	if err != nil {
		return err
	}
	limit := defaultEnded
	if text, ok := q["limit"]; ok {
		n, err := strconv.Atoi(text[0])
		if err != nil || n < 1 || n > api.MaxLimit {
			return bad("limit: "+api.Quote(text[0]), "1 to "+strconv.Itoa(api.MaxLimit))
		}
		limit = n
	}
	problems := false
	if text, ok := q["problems"]; ok {
		if problems, err = strconv.ParseBool(text[0]); err != nil {
			return bad("problems: "+api.Quote(text[0]), "true, false")
		}
	}
	cause := q.Get("cause")
	for _, name := range []string{"limit", "problems", "cause"} {
		delete(q, name)
	}
	for _, name := range []string{"state", "min_idle"} {
		if _, ok := q[name]; ok {
			return bad(name+": the flow has ended", endedNames)
		}
	}
	f, err := api.ParseFilter(q)
	if err != nil {
		return err
	}
	for name := range q {
		return bad("parameter "+api.Quote(name), endedNames)
	}
	all := s.source.Ended(problems)
	list := api.EndedFlows{Flows: []api.EndedFlow{}, Kept: len(all)}
	for i := range all {
		if len(list.Flows) == limit {
			break
		}
		if f.MatchEnded(&all[i]) && (cause == "" || slices.Contains([]string{all[i].Cause, all[i].Reason}, cause)) {
			list.Flows = append(list.Flows, all[i])
		}
	}
	reply(w, list)
	return nil
}

const endedNames = "problems, cause, limit, source, listener, route, group, member, kind, path, min_age, max_age, min_bytes"

// fileDiff returns what a reload would change now.
func (s *Server) fileDiff(w http.ResponseWriter, r *http.Request) error {
	d, err := s.source.FileDiff(r.Context())
	if err != nil {
		return err
	}
	d.Changes = nonNil(d.Changes)
	reply(w, d)
	return nil
}
