package discover

import (
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// complaints tell what is wrong in a registry, at most maxComplaints times in a minute.
type complaints struct {
	tell   func(spec.Discover, string)
	minute time.Time // when the present minute began
	n      int       // in it
}

const maxComplaints = 10

// add tells a problem, unless there were too many.
func (c *complaints) add(what spec.Discover, problem string) {
	now := time.Now()
	if now.Sub(c.minute) >= time.Minute {
		c.minute, c.n = now, 0
	}
	switch c.n++; {
	case c.n < maxComplaints:
		c.tell(what, problem)
	case c.n == maxComplaints:
		c.tell(what, problem+"; more that are wrong are not named for a minute")
	}
}
