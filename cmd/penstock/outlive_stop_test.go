package main

import (
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/testwait"
)

// SIGTERM to the keeper drains the daemon at whichever step of an upgrade it comes, and after a crash: flows go on until they end.
func TestStopDuringUpgrade(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		at   func(*steps)
	}{
		{"while the new worker reads its configuration", func(*steps) {}},
		{"while the old worker hands over", (*steps).handingOver},
		{"while the new worker is to begin", (*steps).starting},
		{"while the new worker makes its engine", (*steps).restoring},
		{"while the new worker is on trial", (*steps).proving},
		{"while a worker begins after a crash", func(s *steps) {
			s.proving()
			s.end(syscall.SIGKILL)
			testwait.Until(s.t, "there is another worker", func() bool { w := s.worker(); return w != 0 && w != s.new })
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := checking(t, "1h")
			c.at(s)
			s.signal(syscall.SIGTERM)
			for _, pid := range []int{s.old, s.new} {
				sendSignal(pid, syscall.SIGCONT) // it may have ended
			}
			testwait.Until(t, "the daemon drains", func() bool {
				st, err := s.admin.Status(s.ctx())
				return err == nil && st.State == "draining"
			})
			s.flows.answer("end")
		})
	}
}
