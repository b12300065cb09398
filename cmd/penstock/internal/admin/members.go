package admin

import (
	"fmt"
	"net/http"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
)

func (s *Server) setMember(w http.ResponseWriter, r *http.Request) error {
	var c api.MemberChange
	if err := body(r, &c); err != nil {
		return err
	}
	if err := c.Check(); err != nil {
		return err
	}
	s.changing.Add(1)
	defer s.changing.Add(-1)
	group, member := r.PathValue("group"), r.PathValue("member")
	m, err := s.source.SetMember(r.Context(), group, member, c)
	if err != nil {
		return err
	}
	for i := range m.Members {
		text := describeChange(&c, &m.Members[i])
		if m.NewWorker {
			text = "is moved to " + c.Address + " by another worker, which takes over"
		}
		s.event(r, "info", "member", group+"/"+m.Members[i].Name, text)
	}
	m.Members = nonNil(m.Members)
	reply(w, m)
	return nil
}

// describeChange returns a change for the list of events.
func describeChange(c *api.MemberChange, m *api.Member) string {
	if c.Address != "" {
		return fmt.Sprintf("was moved to %s; %s, weight %d", m.Address, m.State, m.Weight)
	}
	return fmt.Sprintf("was set to %s, weight %d", m.State, m.Weight)
}

func (s *Server) addMember(w http.ResponseWriter, r *http.Request) error {
	var m api.NewMember
	if err := body(r, &m); err != nil {
		return err
	}
	if err := m.Check(); err != nil {
		return err
	}
	group := r.PathValue("group")
	s.changing.Add(1)
	defer s.changing.Add(-1)
	list, err := s.source.AddMember(r.Context(), group, m)
	if err != nil {
		return err
	}
	name := m.Name
	if name == "" {
		name = m.Address
	}
	text := fmt.Sprintf("was added at %s, weight %d", m.Address, max(1, m.Weight))
	if list.NewWorker {
		text = fmt.Sprintf("is added at %s, weight %d, by another worker, which takes over", m.Address, max(1, m.Weight))
	}
	s.event(r, "info", "member", group+"/"+name, text)
	list.Members = nonNil(list.Members)
	reply(w, list)
	return nil
}

func (s *Server) removeMember(w http.ResponseWriter, r *http.Request) error {
	group, member := r.PathValue("group"), r.PathValue("member")
	list, err := s.source.RemoveMember(group, member)
	if err != nil {
		return err
	}
	for i := range list {
		member = list[i].Name
	}
	s.event(r, "info", "member", group+"/"+member, "was removed")
	reply(w, api.Members{Members: nonNil(list)})
	return nil
}

func (s *Server) memberChanges(w http.ResponseWriter, _ *http.Request) error {
	c := s.source.MemberChanges()
	c.Changes, c.Splits = nonNil(c.Changes), nonNil(c.Splits)
	for i := range c.Changes {
		c.Changes[i].Fields = nonNil(c.Changes[i].Fields)
	}
	reply(w, c)
	return nil
}
