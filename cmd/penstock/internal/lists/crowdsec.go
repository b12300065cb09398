package lists

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"time"
)

// decisions are those of CrowdSec that hold, and until when. Of several decisions about the same addresses, CrowdSec tells the longest, and
// that they have ended only when all have, under the number of any of them. So numbers do not matter.
type decisions struct {
	known map[subject]time.Time // nil: all are asked for
}

// A subject is what a decision is about. An address is another one than the range that has only it.
type subject struct {
	network netip.Prefix
	whole   bool // a range
}

// answer is an answer of GET /v1/decisions/stream.
type answer struct {
	New     []streamed `json:"new"`
	Deleted []streamed `json:"deleted"`
}

type streamed struct {
	ID       int64  `json:"id"`
	Scope    string `json:"scope"` // Ip, Range, or what does not concern addresses: Country, AS
	Value    string `json:"value"`
	Type     string `json:"type"` // ban, captcha
	Duration string `json:"duration"`
}

// readCrowdSec asks for what has changed since the last time; the first time, and after a failure, for everything.
func (l *List) readCrowdSec(ctx context.Context, now time.Time, h Host) (*Set, Report, error) {
	startup := "false"
	if l.crowd.known == nil {
		startup = "true"
	}
	var text []byte
	header, err := bouncerKey(l.Spec.KeyFile, h)
	if err == nil {
		cfg := l.client()
		cfg.TokenFile = ""
		text, err = get(ctx, cfg, l.Spec.CrowdSec+"/v1/decisions/stream?startup="+startup, header)
	}
	var r Report
	changed := false
	if err == nil {
		changed, r, err = l.crowd.apply(text, now)
	}
	if err != nil {
		l.crowd.known = nil // what was deleted meanwhile would never be said again
		return nil, r, err
	}
	if !changed && l.status.Err == nil && !l.status.Loaded.IsZero() {
		return nil, r, nil
	}
	list := make([]Entry, 0, len(l.crowd.known))
	for s := range l.crowd.known {
		list = append(list, Entry{s.network, 0})
	}
	r.Entries = len(list)
	return NewSet(list), r, nil
}

// apply adds and removes what an answer says, and removes what has expired. It reports whether anything has changed.
func (d *decisions) apply(text []byte, now time.Time) (changed bool, r Report, err error) {
	var a answer
	if err := json.Unmarshal(text, &a); err != nil {
		return false, r, fmt.Errorf("the answer of CrowdSec: %w", err)
	}
	if d.known == nil {
		d.known, changed = map[subject]time.Time{}, true
	}
	for i := range a.Deleted {
		on, _, _ := a.Deleted[i].ban()
		if _, ok := d.known[on]; ok {
			delete(d.known, on)
			changed = true
		}
	}
	for i := range a.New {
		on, held, problem := a.New[i].ban()
		if problem != "" {
			if r.Bad++; len(r.Named) < maxNamed {
				r.Named = append(r.Named, problem)
			}
		}
		if problem != "" || !on.network.IsValid() {
			continue
		}
		if len(d.known) >= MaxNetworks {
			return changed, r, fmt.Errorf("more than %d decisions", MaxNetworks)
		}
		d.known[on], changed = now.Add(held), true
	}
	for on, until := range d.known {
		if !now.Before(until) {
			delete(d.known, on)
			changed = true
		}
	}
	return changed, r, nil
}

// ban returns what a decision bans, and for how long; no network: it bans no addresses.
func (s *streamed) ban() (on subject, held time.Duration, problem string) {
	scope := strings.ToLower(s.Scope)
	if s.Type != "ban" || scope != "ip" && scope != "range" {
		return on, 0, ""
	}
	p, err := ParseNetwork(s.Value)
	held, failed := time.ParseDuration(s.Duration)
	if err != nil || failed != nil {
		problem = fmt.Sprintf("decision %d: %.60q for %.20q", s.ID, s.Value, s.Duration)
	}
	return subject{p, scope == "range"}, held, problem
}
