package console

import (
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
)

// answers are the flows in which a member has sent a byte, and the sum of their times to the first byte.
type answers struct {
	n       int64
	seconds float64
}

// mean returns the mean time to the first byte; - if nothing has been answered.
func (a answers) mean() string {
	if a.n <= 0 {
		return "-"
	}
	return span(a.seconds / float64(a.n))
}

func answersOf(m *api.Member) answers { return answers{m.Answers, m.FirstByteSeconds} }

// How far top looks back for the answers of members, and how far two looks that it keeps are apart.
const (
	answersWindow = time.Minute
	answersStep   = 10 * time.Second
)

// memberKey names a member: name and address together are unique in a group.
type memberKey struct{ group, name, address string }

// An answersLook is what the members had answered at some time.
type answersLook struct {
	at      time.Time
	members map[memberKey]answers
}

// lookAtAnswers keeps what the members have answered until now.
func (m *model) lookAtAnswers(now time.Time) {
	if n := len(m.looks); n > 0 && now.Sub(m.looks[n-1].at) < answersStep {
		return
	}
	l := answersLook{now, map[memberKey]answers{}}
	for _, at := range m.members() {
		l.members[at.key()] = answersOf(at.Member)
	}
	m.looks = append(m.looks, l)
	for len(m.looks) > 1 && now.Sub(m.looks[1].at) > answersWindow {
		m.looks = m.looks[1:]
	}
}

// recentAnswers returns what a member has answered in the last minute that top has seen; if that is nothing, or
// another process has begun to count, since the daemon's start.
func (m *model) recentAnswers(at groupMember) answers {
	now := answersOf(at.Member)
	if len(m.looks) == 0 {
		return now
	}
	before := m.looks[0].members[at.key()]
	if now.n <= before.n || now.seconds < before.seconds {
		return now
	}
	return answers{now.n - before.n, now.seconds - before.seconds}
}
