package console

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
)

// memberAction is a change of a member that waits for its confirmation.
type memberAction struct {
	group  string
	member api.Member // as it was when the key was pressed
	change api.MemberChange
	effect string // what the change does
	last   bool   // no other member of the group takes flows
}

// memberKeys are the keys that change the selected member.
var memberKeys = map[string]string{"d": "drain", "D": "disable", "e": "enable", "r": "file"}

// memberPrompt asks for confirmation before it changes the selected member, or for a weight.
func (m *model) memberPrompt(key string) {
	i := m.cursor[memberPane]
	members := m.members()
	if m.pane != memberPane || m.detail != nil || i >= len(members) {
		m.notify(true, "no member selected; select one in the Members pane (key 3)")
		return
	}
	at := members[i]
	a := memberAction{group: at.group, member: *at.Member, last: at.Available}
	for _, other := range members {
		if other.group == at.group && other.Available && (other.Name != at.Name || other.Address != at.Address) {
			a.last = false
		}
	}
	m.action = a
	if key == "w" {
		m.prompt, m.input = askWeight, ""
		return
	}
	m.prompt = askMember
	m.action.change.State = memberKeys[key]
	flows := plural(at.Flows, "open flow")
	switch m.action.change.State {
	case "drain":
		m.action.effect = fmt.Sprintf("no new flows, %s go on", flows)
	case "disable":
		m.action.effect = fmt.Sprintf("ENDS %s, no new ones", flows)
	case "enable":
		m.action.effect, m.action.last = "it takes new flows", false
	case "file":
		m.action.change.Weight = new(int)
		m.action.effect, m.action.last = "state and weight as configured", false
	}
}

// question returns the question about the action, the most important part first: a narrow
// terminal cuts its end.
func (a *memberAction) question() string {
	verb := a.change.State
	if verb == "file" {
		verb = "restore"
	}
	text := fmt.Sprintf("y/n? %s %s: %s", verb, shorten(printable(memberName(&a.member)), 24), a.effect)
	if a.last {
		text += fmt.Sprintf("; LAST available member of %s", printable(a.group))
	}
	return text + " "
}

// answerMember handles a key at the prompt for confirmation.
func (m *model) answerMember(key string) tea.Cmd {
	m.prompt = nothing
	if key == "y" || key == "Y" {
		return m.changeMember()
	}
	m.notify(false, "nothing was changed")
	return nil
}

// setWeight handles the input at the prompt for a weight.
func (m *model) setWeight() tea.Cmd {
	n, err := strconv.Atoi(strings.TrimSpace(m.input))
	if err == nil {
		m.action.change.Weight = &n
		err = m.action.change.Check()
	}
	if err != nil {
		m.notify(true, "allowed: 1 to 256, or 0 for the configured weight")
		return nil
	}
	m.prompt = nothing
	return m.changeMember()
}

// changeMember sends the change to the daemon.
func (m *model) changeMember() tea.Cmd {
	a := m.action
	name := a.member.Name
	if a.member.Address != "" {
		name = a.member.Address // a name may stand for several members
	}
	return func() tea.Msg {
		members, err := call(m.ctx, func(ctx context.Context) (api.Members, error) {
			return m.client.SetMember(ctx, a.group, name, a.change)
		})
		return memberMsg{members, a.group, err}
	}
}
