package upstream

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sort"
	"time"
)

// answersVersion is the version of the text of EncodeAnswers.
const answersVersion = 1

// MaxAnswers bounds the text of the last good answers, in bytes.
const MaxAnswers = 64 << 20

// answers is the text of EncodeAnswers.
type answers struct {
	Version int           `json:"version"`
	Lookups []SavedLookup `json:"lookups"`
}

// GoodAnswers returns the last good answers of registries, for Options.LastGood of a later Set. Their
// targets are only to be read.
func (s *Set) GoodAnswers() (list []SavedLookup) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for d, w := range s.watches {
		if w.answeredOK && d.Registry.Kind != "" {
			list = append(list, w.save())
		}
	}
	sort.Slice(list, func(i, j int) bool { return list[i].Query < list[j].Query })
	return list
}

// AnswersRevision returns a number that changes with what GoodAnswers returns, apart from the times.
func (s *Set) AnswersRevision() uint64 { return s.answersRevision.Load() }

// EncodeAnswers returns answers as a text for DecodeAnswers. Those that would make it longer than
// MaxAnswers are left out, and of the others the members that DecodeAnswers would not take.
func EncodeAnswers(list []SavedLookup) ([]byte, error) { return encodeAnswers(list, MaxAnswers) }

func encodeAnswers(list []SavedLookup, most int) ([]byte, error) {
	out := answers{Version: answersVersion}
	size := 0
	for _, l := range list {
		l.Targets = usable(l.Targets)
		text, err := json.Marshal(l)
		if err != nil {
			return nil, err
		}
		if size+len(text)+1 > most-100 {
			continue
		}
		size += len(text) + 1
		out.Lookups = append(out.Lookups, l)
	}
	return json.Marshal(out)
}

// DecodeAnswers reads a text of EncodeAnswers. It checks every value, and returns all answers or none.
func DecodeAnswers(text []byte) ([]SavedLookup, error) {
	if len(text) > MaxAnswers {
		return nil, fmt.Errorf("it is longer than %d bytes", MaxAnswers)
	}
	var in answers
	if err := json.Unmarshal(text, &in); err != nil {
		return nil, err
	}
	if in.Version != answersVersion {
		return nil, fmt.Errorf("its version is %d; this program reads %d", in.Version, answersVersion)
	}
	for i := range in.Lookups {
		l := &in.Lookups[i]
		if len(l.Targets) > maxTargets || slices.ContainsFunc(l.Targets, func(t Target) bool { return !t.valid() }) {
			return nil, errors.New("it has members that cannot be")
		}
	}
	return in.Lookups, nil
}

// restoreFromDisk takes over what the Set knows of a lookup from an earlier process. The members are
// there at once; the first answer is waited for all the same. That is for the start: what a group that
// comes much later had then says nothing. The caller holds the Set's lock.
func (w *watch) restoreFromDisk(s *Set, now time.Time) {
	if now.After(s.lastGoodUntil) {
		s.opt.LastGood = nil
	}
	l := w.savedIn(s.opt.LastGood)
	if w.answeredOK || l == nil || w.query.Registry.Kind == "" {
		return
	}
	w.answeredOK, w.targets, w.goodAt = true, l.Targets, l.At
	if w.goodAt.After(now) {
		w.goodAt = now
	}
}
