package ledger

import (
	"fmt"

	"github.com/penstock/penstock/internal/sys"
)

// table has the interned strings: one after the other, each behind a byte with its length. A string's
// reference is one more than its offset; 0 is the empty string.
type table struct {
	mem   []byte
	used  []byte // the header's word
	n     int
	refs  map[string]uint32
	names map[uint32]string
}

func (t *table) init(mem, used []byte) {
	t.mem, t.used = mem, used
	t.refs, t.names = make(map[string]uint32), make(map[uint32]string)
}

// load reads the strings that another process has written.
func (t *table) load(used uint64) error {
	if used > uint64(len(t.mem)) {
		return fmt.Errorf("%w: %d bytes of strings", ErrInvalid, used)
	}
	for t.n < int(used) {
		at, size := t.n, int(t.mem[t.n])
		if size > int(used)-at-1 {
			return fmt.Errorf("%w: a string at %d", ErrInvalid, at)
		}
		t.n += 1 + size
		s := string(t.mem[at+1 : t.n])
		if _, ok := t.refs[s]; ok || s == "" { // never written; and there would be no bound
			return fmt.Errorf("%w: string %q again", ErrInvalid, s)
		}
		t.add(s, uint32(at+1))
	}
	return nil
}

func (t *table) add(s string, ref uint32) {
	t.refs[s] = ref
	t.names[ref] = s
}

// Intern returns a reference to s, which is stored once and for as long as the ledger exists. It reports
// false if s is too long, or if there is no room.
func (l *Ledger) Intern(s string) (uint32, bool) {
	t := &l.strings
	if s == "" {
		return 0, true
	}
	if ref, ok := t.refs[s]; ok {
		return ref, true
	}
	if len(s) > MaxString || t.n+1+len(s) > len(t.mem) {
		return 0, false
	}
	ref := uint32(t.n + 1)
	t.mem[t.n] = byte(len(s))
	copy(t.mem[t.n+1:], s)
	t.n += 1 + len(s)
	sys.Store64(t.used, uint64(t.n))
	t.add(string(t.mem[ref:t.n]), ref)
	return ref, true
}

// InternMore is Intern, except that it leaves a quarter of the room to Intern: for strings of which there
// may come ever more.
func (l *Ledger) InternMore(s string) (uint32, bool) {
	if ref, ok := l.strings.refs[s]; ok {
		return ref, true
	}
	if t := &l.strings; s != "" && t.n+1+len(s) > len(t.mem)-len(t.mem)/4 {
		return 0, false
	}
	return l.Intern(s)
}

// String returns an interned string, which stays valid after Close. It reports false if ref refers to
// none.
func (l *Ledger) String(ref uint32) (string, bool) {
	if ref == 0 {
		return "", true
	}
	s, ok := l.strings.names[ref]
	return s, ok
}
