package upstream

import (
	"regexp"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// A CertificateEvent reports that the certificate of a member has expired or soon will.
type CertificateEvent struct {
	Group   string
	Member  string // the first that showed it
	Expires time.Time
	Left    time.Duration // negative: it has expired
}

// nearEnds are the times before the end of a certificate at which it is told.
var nearEnds = [...]time.Duration{30 * 24 * time.Hour, 7 * 24 * time.Hour, 24 * time.Hour, 0}

// maxExpiring bounds the certificates of a group that are remembered as told.
const maxExpiring = 4096

// tellExpiry reports that the member's certificate ends, unless it has reported that of the same certificate of the group. The caller holds the Set's
// lock.
func (m *Member) tellExpiry(now time.Time) {
	g, at := m.group, m.health.expires
	left, step := at.Sub(now), 0
	for step < len(nearEnds) && left < nearEnds[step] {
		step++
	}
	tell := g.set.opt.CertificateExpires
	if step == 0 || tell == nil || g.expiring[at.Unix()] >= step {
		return
	}
	if len(g.expiring) >= maxExpiring {
		clear(g.expiring)
	}
	setIn(&g.expiring, at.Unix(), step)
	e := CertificateEvent{g.name, m.name, at, left}
	g.set.jobs.add(func() { tell(e) })
}

// bodyPattern returns the pattern of a check, which its members share; nil: there is none. The caller holds the Set's lock.
func (g *Group) bodyPattern(c *spec.Check) *regexp.Regexp {
	if c.BodyRE != g.bodyText {
		g.body, g.bodyText = regexp.MustCompile(c.BodyRE), c.BodyRE // package config has compiled it, too
	}
	if c.BodyRE == "" {
		return nil
	}
	return g.body
}
