package keeper

import "time"

// withDefaults returns c with the default in place of each zero value.
func (c Config) withDefaults() Config {
	set := func(d *time.Duration, def time.Duration) {
		if *d == 0 {
			*d = def
		}
	}
	set(&c.ConnectTimeout, 10*time.Second)
	set(&c.ReadyTimeout, time.Minute)
	set(&c.HandOverTimeout, 10*time.Second)
	set(&c.Watchdog, 10*time.Second)
	set(&c.Healthy, 10*time.Second)
	set(&c.Good, time.Minute)
	set(&c.Backoff, 100*time.Millisecond)
	set(&c.MaxBackoff, 10*time.Second)
	set(&c.AskTimeout, 5*time.Second)
	if c.MaxDeaths <= 0 {
		c.MaxDeaths = 5
	}
	if c.MaxItems <= 0 {
		c.MaxItems = 1_000_000
	}
	if c.Log == nil {
		c.Log = func(Event) {}
	}
	if c.Paused == nil {
		c.Paused = func(string, func(func(string, []int) bool)) func() { return nil }
	}
	if c.Notify == nil {
		c.Notify = func(string) {}
	}
	return c
}

// backoff returns the pause before the start after so many deaths in a row.
func (c *Config) backoff(deaths int) time.Duration {
	if deaths <= 1 {
		return 0
	}
	d := c.Backoff
	for i := 2; i < deaths && d < c.MaxBackoff; i++ {
		d *= 2
	}
	return min(d, c.MaxBackoff)
}

// times returns the times that a worker can change.
func (c *Config) times() Times {
	return Times{ReadyTimeout: c.ReadyTimeout, Watchdog: c.Watchdog, Healthy: c.Healthy, MaxBackoff: c.MaxBackoff}
}

// set sets the times that are not 0.
func (c *Config) set(t Times) {
	for _, x := range []struct {
		to *time.Duration
		d  time.Duration
	}{{&c.ReadyTimeout, t.ReadyTimeout}, {&c.Watchdog, t.Watchdog}, {&c.Healthy, t.Healthy}, {&c.MaxBackoff, t.MaxBackoff}} {
		if x.d != 0 {
			*x.to = x.d
		}
	}
}

// timesWords is the number of words of Times in a message.
const timesWords = 4

func (t Times) words() []uint64 {
	return []uint64{uint64(t.ReadyTimeout), uint64(t.Watchdog), uint64(t.Healthy), uint64(t.MaxBackoff)}
}

// timesOf reads what Times.words has written. No time is longer than a year: it is added to others.
func timesOf(msg *message, at int) Times {
	get := func(i int) time.Duration { return min(time.Duration(msg.word(at+i)), 365*24*time.Hour) }
	return Times{ReadyTimeout: max(0, get(0)), Watchdog: get(1), Healthy: get(2), MaxBackoff: max(0, get(3))}
}
