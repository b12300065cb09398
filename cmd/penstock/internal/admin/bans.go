package admin

import (
	"fmt"
	"net/http"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
)

func (s *Server) bans(w http.ResponseWriter, _ *http.Request) error {
	b := s.source.Bans()
	b.Bans = nonNil(b.Bans)
	reply(w, b)
	return nil
}

func (s *Server) ban(w http.ResponseWriter, r *http.Request) error {
	var n api.NewBan
	if err := body(r, &n); err != nil {
		return err
	}
	if err := n.Check(); err != nil {
		return err
	}
	b, err := s.source.Ban(r.Context(), n)
	if err != nil {
		return err
	}
	text := "was banned"
	if n.EndFlows {
		text += fmt.Sprintf("; flows ended: %d", b.Ended)
	}
	s.event(r, "info", "ban", b.Network.String(), text)
	reply(w, b)
	return nil
}

func (s *Server) unban(w http.ResponseWriter, r *http.Request) error {
	b, err := s.source.Unban(r.Context(), r.PathValue("network"))
	if err != nil {
		return err
	}
	s.event(r, "info", "ban", b.Network.String(), "was lifted")
	reply(w, b)
	return nil
}
