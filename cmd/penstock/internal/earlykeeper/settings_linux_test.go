package earlykeeper

import (
	"testing"
	"time"
)

// What the keeper is told by its environment is an error, or read the same again.
func FuzzSettings(f *testing.F) {
	f.Add((&Settings{Binary: "/usr/bin/penstock", Inherited: 2, Watchdog: time.Second, LogFormat: "text"}).Text(), "30000000", "7")
	f.Add(`{"inherited":-1}`, "-1", "")
	f.Fuzz(func(t *testing.T, text, usec, pid string) {
		if s, err := parse(text); err == nil {
			if again, err := parse(s.Text()); err != nil || again != s {
				t.Errorf("%+v becomes %+v, %v", s, again, err)
			}
			s.Times()
		}
		if d := pingEvery(usec, pid, 7); d < 0 || d > 365*24*time.Hour {
			t.Errorf("%q: every %v", usec, d)
		}
	})
}
