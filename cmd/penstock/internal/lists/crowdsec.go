package lists

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"time"
)

// decisions are those of CrowdSec that hold.
type decisions struct {
	known map[int64]decision // nil: all are asked for
}

type decision struct {
	network netip.Prefix
	until   time.Time
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
	for _, d := range l.crowd.known {
		list = append(list, Entry{d.network, 0})
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
		d.known, changed = map[int64]decision{}, true
	}
	for _, s := range a.Deleted {
		if _, ok := d.known[s.ID]; ok {
			delete(d.known, s.ID)
			changed = true
		}
	}
	for _, s := range a.New {
		if s.Type != "ban" || s.Scope != "Ip" && s.Scope != "Range" && s.Scope != "ip" && s.Scope != "range" {
			continue
		}
		p, err := ParseNetwork(s.Value)
		held, failed := time.ParseDuration(s.Duration)
		if err != nil || failed != nil {
			if r.Bad++; len(r.Named) < maxNamed {
				r.Named = append(r.Named, fmt.Sprintf("decision %d: %.60q for %.20q", s.ID, s.Value, s.Duration))
			}
			continue
		}
		if len(d.known) >= MaxNetworks {
			return changed, r, fmt.Errorf("more than %d decisions", MaxNetworks)
		}
		d.known[s.ID], changed = decision{p, now.Add(held)}, true
	}
	for id, s := range d.known {
		if !now.Before(s.until) {
			delete(d.known, id)
			changed = true
		}
	}
	return changed, r, nil
}
