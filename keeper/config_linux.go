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
	if c.MaxDeaths <= 0 {
		c.MaxDeaths = 5
	}
	if c.MaxItems <= 0 {
		c.MaxItems = 1_000_000
	}
	if c.Log == nil {
		c.Log = func(Event) {}
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
