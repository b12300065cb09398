package console

import (
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
)

// TestRecentAnswers shows members of the last minute that top has seen, and of all time if nothing was answered in it.
func TestRecentAnswers(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	m := &model{}
	look := func(after time.Duration, n int64, seconds float64) string {
		m.groups = []api.Group{{Name: "g", Members: []api.Member{{Name: "m", Address: "a", Answers: n, FirstByteSeconds: seconds}, {Name: "m", Address: "b"}}}}
		m.lookAtAnswers(at.Add(after))
		if other := m.recentAnswers(m.members()[1]).mean(); other != "-" {
			t.Errorf("the member at the other address: %s", other)
		}
		return m.recentAnswers(m.members()[0]).mean()
	}
	for i, c := range []struct {
		after   time.Duration
		n       int64
		seconds float64
		want    string
	}{
		{0, 100, 0.1, "1ms"},                         // the first look: since the start
		{5 * time.Second, 110, 0.2, "10ms"},          // 10 flows in 100 ms
		{60 * time.Second, 110, 0.2, "10ms"},         // still the last minute
		{130 * time.Second, 110, 0.2, "1.82ms"},      // nothing since: all
		{140 * time.Second, 111, 2.2, "2s"},          // one slow flow
		{150 * time.Second, 1, 0.003, "3ms"},         // another process counts
		{400 * time.Second, 3, 0.003 + 0.02, "10ms"}, // and goes on
	} {
		if got := look(c.after, c.n, c.seconds); got != c.want {
			t.Errorf("step %d: %s, want %s", i, got, c.want)
		}
	}
}
