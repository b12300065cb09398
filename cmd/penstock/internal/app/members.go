package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/cmd/penstock/internal/config"
	"github.com/penstock/penstock/cmd/penstock/internal/cycle"
	"github.com/penstock/penstock/cmd/penstock/internal/quicid"
	"github.com/penstock/penstock/cmd/penstock/internal/sandboxneeds"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/cmd/penstock/internal/upstream"
)

// modes are the values of api.MemberChange.State.
var modes = map[string]upstream.Mode{"enable": upstream.Enable, "drain": upstream.Drain, "disable": upstream.Disable, "file": upstream.AsFile}

// SetMember changes the members of a group that have a name or address, and returns them.
func (d *daemon) SetMember(ctx context.Context, group, name string, change api.MemberChange) (api.Members, error) {
	g, err := d.groupNamed(group)
	if err != nil {
		return api.Members{}, err
	}
	var to spec.Endpoint
	var missing sandboxneeds.Needs
	if change.Address != "" {
		if to, err = d.memberEndpoint(g, change.Address); err != nil {
			return api.Members{}, err
		}
		// Nothing may have changed when the move is refused.
		if err := d.set.CheckMove(group, name); err != nil {
			return api.Members{}, memberProblem(err)
		}
		if missing, err = d.memberNeeds(g, to); err != nil {
			return api.Members{}, err
		}
	}
	if change.State == "file" {
		err = d.set.RestoreMember(group, name)
	}
	if err == nil && change.Weight != nil {
		err = d.set.SetWeight(group, name, *change.Weight)
	}
	if mode, ok := modes[change.State]; ok && mode != upstream.AsFile && err == nil {
		err = d.set.SetMode(group, name, mode)
	}
	if err == nil && change.State == "disable" {
		d.flows.EndMemberFlows(group, name)
	}
	if err == nil && change.Address != "" {
		for _, m := range d.membersNamed(group, name) {
			name = m.Name // the address will be another one
		}
		if len(missing) > 0 {
			return d.changeByAnother(ctx, group, name, missing, func(next upstream.Next) error { return next.MoveMember(group, name, to) })
		}
		err = d.set.MoveMember(group, name, to)
	}
	if err != nil {
		return api.Members{}, memberProblem(err)
	}
	d.saveState(savedSources) // a change that was answered is known to the next worker
	running := d.set.Group(group)
	return api.Members{Members: d.membersNamed(group, name), NoneAvailable: running != nil && !running.Open()}, nil
}

// AddMember adds a member to a group.
func (d *daemon) AddMember(ctx context.Context, group string, m api.NewMember) (api.Members, error) {
	g, err := d.groupNamed(group)
	if err != nil {
		return api.Members{}, err
	}
	to, err := d.memberEndpoint(g, m.Address)
	if err != nil {
		return api.Members{}, err
	}
	if m.Name != "" {
		if err := config.CheckName(m.Name); err != nil {
			return api.Members{}, problemOf(http.StatusBadRequest, err)
		}
	}
	added := spec.Member{Name: m.Name, To: to, Weight: max(1, m.Weight), Backup: m.Backup, MaxFlows: m.MaxFlows,
		CheckPort: uint16(m.CheckPort), CheckAddress: m.CheckAddress.Unmap()}
	if added.Name == "" {
		added.Name = to.String()
	}
	if added.CheckPort != 0 || added.CheckAddress.IsValid() {
		switch {
		case g.Check == nil:
			return api.Members{}, api.NewProblem(http.StatusConflict, "group "+group+" has no check", "a member without check_port and check_address")
		case to.Kind == spec.Unix || to.Kind == spec.Unixgram:
			return api.Members{}, api.NewProblem(http.StatusConflict, "the member is a Unix socket, which has no port", "a member without check_port and check_address")
		}
	}
	if m.QUICServerID != "" {
		if added.QUICServerID, err = d.serverID(g, m.QUICServerID); err != nil {
			return api.Members{}, err
		}
	}
	missing, err := d.memberNeeds(g, g.EndpointsOf(&added)...)
	if err != nil {
		return api.Members{}, err
	}
	if len(missing) > 0 {
		return d.changeByAnother(ctx, group, added.Name, missing, func(next upstream.Next) error { return next.AddMember(group, added) })
	}
	if err := d.set.AddMember(group, added); err != nil {
		return api.Members{}, memberProblem(err)
	}
	d.saveState(savedSources)
	return api.Members{Members: d.membersNamed(group, added.Name)}, nil
}

// RemoveMember removes a member from a group, and returns what was removed.
func (d *daemon) RemoveMember(group, name string) ([]api.Member, error) {
	if _, err := d.groupNamed(group); err != nil {
		return nil, err
	}
	list := d.membersNamed(group, name)
	if err := d.set.RemoveMember(group, name); err != nil {
		return nil, memberProblem(err)
	}
	d.saveState(savedSources)
	return list, nil
}

// MemberChanges returns how running members, and the weights of parts, differ from the file.
func (d *daemon) MemberChanges() api.MemberChanges {
	var out api.MemberChanges
	var yaml strings.Builder
	for _, g := range d.set.Snapshot() {
		for _, diff := range g.Differences {
			m := api.MemberDifference{Group: g.Name, Member: diff.Member, What: diff.What}
			for _, f := range diff.Fields {
				m.Fields = append(m.Fields, api.FieldDifference(f))
			}
			out.Changes = append(out.Changes, m)
		}
		if g.Differences != nil {
			writeMembers(&yaml, g.Name, g.Running)
		}
	}
	if yaml.Len() > 0 {
		out.YAML = "groups:\n" + yaml.String()
	}
	yaml.Reset()
	out.Splits = d.splitDifferences(&yaml)
	out.YAML += yaml.String()
	return out
}

// writeMembers writes the members of a group as the configuration has them. Strings are written as
// in JSON, which YAML takes.
func writeMembers(b *strings.Builder, group string, members []spec.Member) {
	quoted := func(s string) string {
		text, _ := json.Marshal(s)
		return string(text)
	}
	fmt.Fprintf(b, "  %s:\n    members:\n", quoted(group))
	for _, m := range members {
		to := m.To.String()
		fmt.Fprintf(b, "      - {to: %s", quoted(to))
		// A member that was moved may be named after its old address, which a file cannot say.
		if m.Name != to && config.CheckName(m.Name) == nil {
			fmt.Fprintf(b, ", name: %s", quoted(m.Name))
		}
		if m.Weight > 1 {
			fmt.Fprintf(b, ", weight: %d", m.Weight)
		}
		if m.MaxFlows > 0 {
			fmt.Fprintf(b, ", max-flows: %d", m.MaxFlows)
		}
		if m.Backup {
			b.WriteString(", backup: true")
		}
		if m.Drained {
			b.WriteString(", drained: true")
		}
		if m.CheckPort > 0 {
			fmt.Fprintf(b, ", check-port: %d", m.CheckPort)
		}
		if m.CheckAddress.IsValid() {
			fmt.Fprintf(b, ", check-address: %s", quoted(m.CheckAddress.String()))
		}
		if m.AgentPort > 0 {
			fmt.Fprintf(b, ", agent-port: %d", m.AgentPort)
		}
		if m.AgentAddress.IsValid() {
			fmt.Fprintf(b, ", agent-address: %s", quoted(m.AgentAddress.String()))
		}
		if m.AgentSend != "" {
			fmt.Fprintf(b, ", agent-send: \"hex:%x\"", m.AgentSend)
		}
		if m.QUICServerID != "" {
			fmt.Fprintf(b, ", quic-server-id: \"0x%x\"", m.QUICServerID)
		}
		b.WriteString("}\n")
	}
}

// serverID returns the ID of a member of a group in connection IDs of QUIC.
func (d *daemon) serverID(g *spec.Group, text string) (string, error) {
	const none = "a member without quic_server_id"
	if !g.QUIC.Routable() {
		return "", api.NewProblem(http.StatusConflict, "group "+g.Name+" has no quic with ids", none)
	}
	id, err := quicid.ParseServer(text)
	if err != nil {
		return "", api.NewProblem(http.StatusBadRequest, "quic_server_id: "+api.Quote(text)+" is "+err.Error(), "the length that server-id of one of ids says, or 8 with ids: cloud")
	}
	if !slices.ContainsFunc(quicid.Layouts(g.QUIC), func(l *quicid.Layout) bool { return l.ServerLen() == len(id) }) {
		return "", api.NewProblem(http.StatusConflict, fmt.Sprintf("quic_server_id has %s, and ids of the group has no configuration with such server IDs", config.Counted(len(id), "byte")),
			"the length that server-id of one of ids says, or 8 with ids: cloud")
	}
	if running := d.set.Group(g.Name); running != nil {
		if other := running.Server([]byte(id)); other != nil {
			return "", api.NewProblem(http.StatusConflict, "the member "+other.Name()+" already has this quic_server_id", "one for each server")
		}
	}
	return id, nil
}

// groupNamed returns a group of the running configuration.
func (d *daemon) groupNamed(name string) (*spec.Group, error) {
	groups := d.active.Load().Groups
	i := slices.IndexFunc(groups, func(g *spec.Group) bool { return g.Name == name })
	if i < 0 {
		return nil, api.NotFound("group", name, "those of /v1/groups")
	}
	return groups[i], nil
}

// membersNamed returns the members of a group that have a name or address.
func (d *daemon) membersNamed(group, name string) (list []api.Member) {
	for _, g := range d.Groups() {
		for _, m := range g.Members {
			if g.Name == group && (m.Name == name || m.Address == name) {
				list = append(list, m)
			}
		}
	}
	return list
}

// memberEndpoint parses the address of a new member of a group. It must fit the listeners that lead
// to the group, and must not lead back to one of them.
func (d *daemon) memberEndpoint(g *spec.Group, text string) (spec.Endpoint, error) {
	e, err := spec.ParseUpstream(text)
	if err != nil {
		return e, memberProblem(err)
	}
	f := d.active.Load()
	for _, l := range f.Listeners {
		if !slices.ContainsFunc(l.AllRoutes(), func(r *spec.Route) bool { return r.LeadsTo(g.Name) }) {
			continue
		}
		kind, fits := "streams", e.Kind.Streams()
		if l.Datagrams {
			kind, fits = "datagrams", e.Kind.Datagrams()
		}
		if !fits {
			return e, api.NewProblem(http.StatusUnprocessableEntity, fmt.Sprintf("address: %s does not carry %s, and listener %s leads to the group", e, kind, l.Name),
				"an address of the kind of the group's members")
		}
		if n := e.Ports(); n > 1 && n != l.Listen.Ports() {
			return e, api.NewProblem(http.StatusUnprocessableEntity, fmt.Sprintf("address: %s has %s, and listener %s has %d", e, config.Counted(n, "port"), l.Name, l.Listen.Ports()),
				"as many ports as the listener, or one port")
		}
	}
	a, ok := e.Literal()
	if !ok {
		return e, nil
	}
	cycles := f.ownListeners.Find(f.Listeners, func(other *spec.Group) []cycle.Member {
		list := cycle.LiteralMembers(other)
		if other.Name == g.Name {
			list = append(list, cycle.Member{Addr: a, Ports: e.Ports()})
		}
		return list
	})
	for _, h := range slices.SortedFunc(maps.Keys(cycles), func(x, y cycle.Hop) int { return strings.Compare(x.Listener, y.Listener) }) {
		return e, api.NewProblem(http.StatusUnprocessableEntity, fmt.Sprintf("address: %s leads back to listener %s (%s)", e, h.Listener, strings.Join(cycles[h], " > ")),
			"members that do not lead back to the listener")
	}
	return e, nil
}

// memberProblem returns an error of package upstream or spec as an answer of the API.
func memberProblem(err error) error {
	var none *upstream.NoMemberError
	if errors.As(err, &none) {
		if none.Next {
			return errReplacing()
		}
		return api.NotFound("member", none.Member, "those of /v1/groups/"+none.Group)
	}
	status := http.StatusConflict
	var bad *spec.Error
	if errors.As(err, &bad) {
		status = http.StatusBadRequest
	}
	return problemOf(status, err)
}

// problemOf returns an error as an answer of the API.
func problemOf(status int, err error) *api.Problem {
	detail, allowed, _ := strings.Cut(err.Error(), "; allowed: ")
	return api.NewProblem(status, detail, allowed)
}
