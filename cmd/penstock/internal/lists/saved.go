package lists

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"
)

// savedHead begins a saved list. A text with another one is not read.
const savedHead = "penstock list 1"

// All returns the networks in their order.
func (s *Set) All() iter.Seq[Entry] {
	return func(yield func(Entry) bool) {
		for i := range s.v4.all {
			if !yield(s.v4.entry(i, address4(s.v4.all[i].addr))) {
				return
			}
		}
		for i := range s.v6.all {
			if !yield(s.v6.entry(i, s.v6.all[i].addr.address())) {
				return
			}
		}
	}
}

// Equal reports whether two sets have the same networks, of the same lines.
func (s *Set) Equal(o *Set) bool {
	return s == o || slices.Equal(s.v4.all, o.v4.all) && slices.Equal(s.v6.all, o.v6.all)
}

// origin says where a list is from. What was saved of another place is not taken for it.
func (l *List) origin() string {
	at := strings.Join([]string{l.Spec.URL, l.Spec.Etcd, l.Spec.CrowdSec, strings.Join(l.Spec.Registry.ServerList(), " ")}, " ")
	if l.Spec.Lines != "" {
		at += " lines: " + l.Spec.Lines
	}
	return at
}

// How often a list is saved: one that changes all the time, and one that does not, whose text tells when it was loaded last.
const (
	saveChangedEvery = time.Minute
	saveSameEvery    = time.Hour
)

// lastSave is what was saved of a list last, or was to be.
type lastSave struct {
	set *Set // nil: nothing yet
	at  time.Time
	err error
}

// Save calls write with a text of the list, for a start at which it cannot be loaded, if it was loaded and has changed since it was saved.
// What could not be written is written later. final says that there is no later time. Save returns an error of write, unless the attempt
// before has failed, too.
func (l *List) Save(now time.Time, final bool, write func(text []byte) error) error {
	l.saving.Lock()
	defer l.saving.Unlock()
	at, set, was := l.Status(), l.Set(), &l.lastSave
	switch age := now.Sub(was.at); {
	case at.Loaded.IsZero() || at.Saved:
		return nil
	case was.set == nil:
	case !final && age < saveChangedEvery:
		return nil
	case was.err == nil && age < saveSameEvery && was.set.Equal(set):
		was.set = set
		return nil
	}
	before := was.err
	*was = lastSave{set, now, write(l.Saved(set, at.Loaded))}
	if before != nil {
		return nil
	}
	return was.err
}

// Saved returns networks of the list that were loaded at a time, as a text for a start at which they cannot be loaded.
func (l *List) Saved(set *Set, loaded time.Time) []byte {
	var b bytes.Buffer
	for e := range set.All() {
		b.WriteString(e.Network.String())
		b.WriteByte(' ')
		b.WriteString(strconv.FormatUint(uint64(e.Line), 10))
		b.WriteByte('\n')
	}
	sum := sha256.Sum256(b.Bytes())
	head := fmt.Sprintf("%s\n%s\n%q\n%s\n", savedHead, loaded.UTC().Format(time.RFC3339), l.origin(), hex.EncodeToString(sum[:]))
	return append([]byte(head), b.Bytes()...)
}

// Restore begins with networks that Saved has written, unless the list was loaded.
func (l *List) Restore(text []byte) error {
	set, loaded, origin, err := parseSaved(text)
	switch {
	case err != nil:
		return err
	case origin != l.origin():
		return errors.New("it is that of another place: " + strings.TrimSpace(origin))
	}
	l.loading.Lock()
	defer l.loading.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.status.Loaded.IsZero() {
		l.set.Store(set)
		l.status.Loaded, l.status.Saved = loaded, true
	}
	return nil
}

// parseSaved reads what Saved has written.
func parseSaved(text []byte) (set *Set, loaded time.Time, origin string, err error) {
	var head [4]string
	for i := range head {
		line, rest, ok := bytes.Cut(text, []byte("\n"))
		if !ok {
			return nil, loaded, "", errors.New("it is not whole")
		}
		head[i], text = string(line), rest
	}
	if head[0] != savedHead {
		return nil, loaded, "", errors.New("it is no saved list")
	}
	if loaded, err = time.Parse(time.RFC3339, head[1]); err != nil {
		return nil, loaded, "", err
	}
	if origin, err = strconv.Unquote(head[2]); err != nil {
		return nil, loaded, "", err
	}
	if sum := sha256.Sum256(text); hex.EncodeToString(sum[:]) != head[3] {
		return nil, loaded, "", errors.New("its checksum is wrong")
	}
	list := make([]Entry, 0, min(bytes.Count(text, []byte("\n")), MaxNetworks))
	for line := range bytes.Lines(text) {
		network, number, _ := strings.Cut(strings.TrimSuffix(string(line), "\n"), " ")
		p, err := ParseNetwork(network)
		if err != nil {
			return nil, loaded, "", err
		}
		n, err := strconv.ParseUint(number, 10, 32)
		if err != nil {
			return nil, loaded, "", err
		}
		if len(list) >= MaxNetworks {
			return nil, loaded, "", fmt.Errorf("more than %d networks", MaxNetworks)
		}
		list = append(list, Entry{p, uint32(n)})
	}
	return NewSet(list), loaded, origin, nil
}
