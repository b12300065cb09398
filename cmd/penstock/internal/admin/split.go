package admin

import (
	"net/http"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
)

func (s *Server) setSplit(w http.ResponseWriter, r *http.Request) error {
	var c api.SplitChange
	if err := body(r, &c); err != nil {
		return err
	}
	if err := c.Check(); err != nil {
		return err
	}
	s.changing.Add(1)
	defer s.changing.Add(-1)
	listener, name := r.PathValue("listener"), r.PathValue("route")
	to, err := s.source.SetSplit(r.Context(), listener, name, c)
	if err != nil {
		return err
	}
	where := ""
	if to.FleetWeights {
		where = ", in the whole fleet"
	}
	s.event(r, "info", "split", listener+"/"+name, "was set to "+to.Shares()+where)
	reply(w, to)
	return nil
}
