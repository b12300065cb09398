package admin

import "net/http"

func (s *Server) lists(w http.ResponseWriter, _ *http.Request) error {
	reply(w, s.source.Lists())
	return nil
}
