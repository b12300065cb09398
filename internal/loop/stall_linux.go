package loop

import "time"

// stallWindow is for how long Loop.LongestTurn remembers at least.
const stallWindow = 15 * time.Second

// stall keeps the longest turn of a loop in this window and in the one before.
type stall struct {
	present, before time.Duration
	until           time.Duration // this window's end
}

func (s *stall) add(now, turn time.Duration) {
	if now >= s.until {
		s.roll(now)
	}
	s.present = max(s.present, turn)
}

func (s *stall) longest(now time.Duration) time.Duration {
	if now >= s.until {
		s.roll(now)
	}
	return max(s.present, s.before)
}

func (s *stall) roll(now time.Duration) {
	s.before = s.present
	if now >= s.until+stallWindow {
		s.before = 0
	}
	s.present, s.until = 0, now+stallWindow
}

// endTurn ends a turn: it accounts for the time since the last wait.
func (l *Loop) endTurn() {
	now := l.Clock()
	turn := now - l.Now
	*l.counters.Busy += turn
	l.stall.add(now, turn)
	l.waitBegan = now
}
