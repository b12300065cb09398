package admin

import (
	"io"
	"net/http"
	"strings"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
)

func (s *Server) runningConfig(w http.ResponseWriter, _ *http.Request) error {
	c := s.source.Config()
	// A client with the read token must not find a token here, whatever the source left in.
	for _, secret := range []string{s.config.Token, s.config.ReadToken} {
		if secret != "" {
			c.Text = strings.ReplaceAll(c.Text, secret, "[secret]")
		}
	}
	reply(w, c)
	return nil
}

// diff answers what the configuration in the body would change.
func (s *Server) diff(w http.ResponseWriter, r *http.Request) error {
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	d, err := s.source.Diff(r.Context(), text)
	if err != nil {
		return err
	}
	d.Changes = nonNil(d.Changes)
	reply(w, d)
	return nil
}

// Changing reports whether a request that may end with another worker was not answered yet: a reload, or a change of members.
func (s *Server) Changing() bool { return s.changing.Load() > 0 }

// reload answers when the new configuration is running, or was rejected.
func (s *Server) reload(w http.ResponseWriter, r *http.Request) error {
	s.changing.Add(1)
	defer s.changing.Add(-1)
	d, err := s.source.Reload(r.Context())
	if err != nil {
		return err
	}
	d.Changes = nonNil(d.Changes)
	reply(w, d)
	return nil
}

func (s *Server) listeners(w http.ResponseWriter, _ *http.Request) error {
	list := nonNil(s.source.Listeners())
	for i := range list {
		list[i].Routes = nonNil(list[i].Routes)
	}
	reply(w, api.Listeners{Listeners: list})
	return nil
}

func (s *Server) groups(w http.ResponseWriter, _ *http.Request) error {
	list := nonNil(s.source.Groups())
	for i := range list {
		list[i].Members = nonNil(list[i].Members)
		nonNilLatency(&list[i].Latency)
	}
	reply(w, api.Groups{Groups: list})
	return nil
}

func (s *Server) group(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("group")
	var names []string
	for _, g := range s.source.Groups() {
		if g.Name == name {
			g.Members = nonNil(g.Members)
			nonNilLatency(&g.Latency)
			reply(w, g)
			return nil
		}
		names = append(names, g.Name)
	}
	return api.NotFound("group", name, strings.Join(names, ", "))
}
