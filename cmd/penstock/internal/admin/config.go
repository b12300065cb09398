package admin

import (
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
)

func (s *Server) inForce(w http.ResponseWriter, _ *http.Request) error {
	c := s.source.Config()
	// Who has the read token must not find the other one here, whatever the source has left in.
	for _, secret := range []string{s.config.Token, s.config.ReadToken} {
		if secret != "" {
			c.Text = strings.ReplaceAll(c.Text, secret, "[secret]")
		}
	}
	reply(w, c)
	return nil
}

// diff tells what the configuration in the body would change.
func (s *Server) diff(w http.ResponseWriter, r *http.Request) error {
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	d, err := s.source.Diff(r.Context(), text)
	if err != nil {
		return err
	}
	d.Changes = some(d.Changes)
	reply(w, d)
	return nil
}

// reload answers when the new configuration is in force, or has been refused.
func (s *Server) reload(w http.ResponseWriter, r *http.Request) error {
	d, err := s.source.Reload(r.Context())
	if err != nil {
		return err
	}
	d.Changes = some(d.Changes)
	reply(w, d)
	return nil
}

func (s *Server) listeners(w http.ResponseWriter, _ *http.Request) error {
	list := some(s.source.Listeners())
	for i := range list {
		list[i].Routes = some(list[i].Routes)
	}
	reply(w, api.Listeners{Listeners: list})
	return nil
}

func (s *Server) groups(w http.ResponseWriter, _ *http.Request) error {
	list := some(s.source.Groups())
	for i := range list {
		list[i].Members = some(list[i].Members)
		someLatency(&list[i].Latency)
	}
	reply(w, api.Groups{Groups: list})
	return nil
}

func (s *Server) group(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("group")
	var names []string
	for _, g := range s.source.Groups() {
		if g.Name == name {
			g.Members = some(g.Members)
			someLatency(&g.Latency)
			reply(w, g)
			return nil
		}
		names = append(names, g.Name)
	}
	return api.NotFound("group", name, strings.Join(names, ", "))
}

func (s *Server) setMember(w http.ResponseWriter, r *http.Request) error {
	var c api.MemberChange
	if err := body(r, &c); err != nil {
		return err
	}
	if err := c.Check(); err != nil {
		return err
	}
	group, member := r.PathValue("group"), r.PathValue("member")
	m, err := s.source.SetMember(group, member, c)
	if err != nil {
		return err
	}
	for i := range m {
		s.event(r, "info", "member", group+"/"+m[i].Name, fmt.Sprintf("was set to %s, weight %d", m[i].State, m[i].Weight))
	}
	reply(w, api.Members{Members: some(m)})
	return nil
}
