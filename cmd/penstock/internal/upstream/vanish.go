package upstream

import (
	"context"
	"fmt"
	"time"
)

// A doubt is that an answer may be a fault of its source, because it lacks so many members that the
// answers before had. What the answer says of others applies; those that it lacks stay until the
// answers have been so for Lookups.Keep. The Set's lock guards it.
type doubt struct {
	before []Target // the members before
	answer []Target // the last answer, without those that stay
	timer  *time.Timer
}

// A VanishedError is the fault of an answer that lacks too many members.
type VanishedError struct{ Has, Had int }

func (e *VanishedError) Error() string {
	return fmt.Sprintf("the answer has %d of %d members; they stay for now (lookups.vanish)", e.Has, e.Had)
}

// isDoubt reports whether an error is that of an answer that is doubted.
func isDoubt(err error) bool {
	_, ok := err.(*VanishedError)
	return ok
}

// tooMany reports whether of so many members too many are gone for a share that may go at once. One
// of several may always go, and the last one never.
func tooMany(had, has int, share float64) bool {
	gone := had - has
	return share > 0 && gone > 0 && (has == 0 || gone > 1 && float64(gone) > share*float64(had)+1e-9)
}

// judge returns the members that a watch has after a good answer, and how many of them the answer
// lacks, if those are so many that it is doubted. The error of the watch then says so. Only numbers
// are compared: members that are replaced by others do not vanish. The caller holds s.mu.
func (s *Set) judge(ctx context.Context, w *watch, answer []Target) (targets []Target, vanished int) {
	before := w.targets
	if w.doubt != nil {
		before = w.doubt.before
	}
	if !tooMany(len(before), len(answer), w.query.Lookups.Vanish) {
		w.doubt.pause()
		w.doubt = nil
		return answer, 0
	}
	if w.doubt == nil {
		w.doubt = &doubt{before: before}
	}
	d := w.doubt
	d.answer = answer
	if d.timer == nil && w.query.Lookups.Keep > 0 {
		d.timer = s.after(w.query.Lookups.Keep, func(now time.Time) { s.believe(ctx, w, d, now) })
	}
	w.err = &VanishedError{len(answer), len(before)}
	w.counts.Words()[lookupFailuresAt].Add(1)
	has := make(map[memberKey]bool, len(answer))
	for _, t := range answer {
		has[memberKey{t.Name, t.Addr}] = true
	}
	targets = append(targets, answer...)
	for _, t := range before {
		if !has[memberKey{t.Name, t.Addr}] && len(targets) < maxTargets {
			targets = append(targets, t)
		}
	}
	return targets, len(before) - len(answer)
}

// believe applies an answer that was doubted. The caller holds s.mu.
func (s *Set) believe(ctx context.Context, w *watch, d *doubt, now time.Time) {
	if ctx.Err() != nil || w.doubt != d || d.timer == nil {
		return
	}
	vanished := len(d.before) - len(d.answer)
	w.doubt, w.err, w.targets, w.goodAt = nil, nil, d.answer, now
	s.touch()
	s.answersRevision.Add(1)
	s.refresh(w, now, "found by "+lookupName(w.query))
	s.notifyLookup(w, LookupEvent{Removed: true, Vanished: vanished})
}

// pause stops the time after which the answer is believed. d may be nil.
func (d *doubt) pause() {
	if d != nil && d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
}
