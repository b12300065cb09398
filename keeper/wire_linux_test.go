package keeper

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

// encode is the inverse of parse.
func (m message) encode() []byte {
	switch {
	case m.kind.hasItems():
		b := appendHeader(nil, m.kind, m.seq)
		for _, i := range m.items {
			b = appendItem(b, i.key, i.label, i.fds)
		}
		setCount(b, len(m.items))
		return b
	case m.kind.hasKeys():
		b := appendHeader(nil, m.kind, m.seq)
		for _, k := range m.keys {
			b = appendKey(b, k)
		}
		setCount(b, len(m.keys))
		return b
	}
	return appendControl(nil, m.kind, m.seq, m.words, m.texts...)
}

func FuzzMessage(f *testing.F) {
	f.Add([]byte{})
	f.Add(message{kind: kindHold, seq: 1, items: []wireItem{{[2]uint64{1, 2}, "label", 2}, {[2]uint64{3, 4}, "", 0}}}.encode())
	f.Add(message{kind: kindDrop, keys: [][2]uint64{{1, 2}, {3, 4}}}.encode())
	f.Add(message{kind: kindUpgrade, words: []uint64{1, 0}, texts: []string{"/path"}}.encode())
	f.Add(message{kind: kindWelcome, words: make([]uint64, 20), texts: []string{"", "a", "b"}}.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		before := bytes.Clone(b)
		var m message
		err := m.parse(b)
		if !bytes.Equal(b, before) {
			t.Fatal("parse changed its input")
		}
		if err != nil {
			return
		}
		if n := len(m.items)*itemHead + len(m.keys)*keySize + 8*len(m.words); n > len(b) {
			t.Fatalf("%d bytes parsed as %d", len(b), n)
		}
		b[1] = 0 // not looked at
		if got := m.encode(); !bytes.Equal(got, b) {
			t.Fatalf("%x was parsed and encoded as %x", b, got)
		}
	})
}

func TestMessageLimits(t *testing.T) {
	hold := func(label string, fds int) []byte {
		b := appendHeader(nil, kindHold, 1)
		setCount(b, 1)
		return appendItem(b, [2]uint64{1, 2}, label, fds)
	}
	texts := slices.Repeat([]string{"x"}, maxTexts)
	for _, c := range []struct {
		name string
		b    []byte
		want error
	}{
		{"whole", hold(strings.Repeat("x", MaxLabel), MaxDescriptors), nil},
		{"many descriptors", hold("", MaxDescriptors+1), errCount},
		{"cut", hold("label", 1)[:headerSize+itemHead+2], errCount},
		{"more", append(hold("", 1), 0), errCount},
		{"empty", nil, errShort},
		{"header", appendHeader(nil, kindReady, 0)[:7], errShort},
		{"long", make([]byte, maxMessage+1), errLong},
		{"kind", appendHeader(nil, 77, 0), errKind},
		{"words", appendControl(nil, kindHello, 0, make([]uint64, maxWords)), nil},
		{"many words", appendControl(nil, kindHello, 0, make([]uint64, maxWords+1)), errCount},
		{"texts", appendControl(nil, kindHello, 0, nil, texts...), nil},
		{"many texts", appendControl(nil, kindHello, 0, nil, append(texts, "x")...), errCount},
		{"long text", append(appendHeader(nil, kindHello, 0), 1, 0x10), errCount},
	} {
		var m message
		if err := m.parse(c.b); err != c.want {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
}
