package quichello

import (
	"bytes"
	"errors"
	"testing"
)

func TestParseHeader(t *testing.T) {
	long := func(first byte, version string, rest ...byte) []byte {
		return append(append([]byte{first}, version...), rest...)
	}
	const v1, v2, draft = "\x00\x00\x00\x01", "\x6b\x33\x43\xcf", "\xff\x00\x00\x1d"
	for name, c := range map[string]struct {
		b         []byte
		kind      Kind
		dest, src string
		err       error
	}{
		"nothing":                      {nil, 0, "", "", ErrNotQUIC},
		"a query of DNS":               {[]byte("\x12\x34\x01\x00\x00\x01"), Short, "\x34\x01\x00\x00\x01", "", nil},
		"a short header":               {[]byte("\x40abcdefgh"), Short, "abcdefgh", "", nil},
		"without a version":            {[]byte("\xc0\x00\x00\x00"), 0, "", "", ErrNotQUIC},
		"without IDs":                  {long(0xc0, v1), 0, "", "", ErrNotQUIC},
		"an ID that is cut off":        {long(0xc0, v1, 3, 'a', 'b'), 0, "", "", ErrNotQUIC},
		"without a source":             {long(0xc0, v1, 1, 'a'), 0, "", "", ErrNotQUIC},
		"Initial":                      {long(0xc3, v1, 2, 'a', 'b', 1, 'c', 0), Initial, "ab", "c", nil},
		"0-RTT":                        {long(0xd3, v1, 0, 1, 'c'), ZeroRTT, "", "c", nil},
		"Handshake":                    {long(0xe0, v1, 0, 0), Handshake, "", "", nil},
		"Retry":                        {long(0xf0, v1, 0, 0), Retry, "", "", nil},
		"Initial of version 2":         {long(0xd0, v2, 0, 0), Initial, "", "", nil},
		"0-RTT of version 2":           {long(0xe0, v2, 0, 0), ZeroRTT, "", "", nil},
		"Handshake of version 2":       {long(0xf0, v2, 0, 0), Handshake, "", "", nil},
		"Retry of version 2":           {long(0xc0, v2, 0, 0), Retry, "", "", nil},
		"Version Negotiation":          {long(0x80, "\x00\x00\x00\x00", 1, 'a', 1, 'b', 0, 0, 0, 1), VersionNegotiation, "a", "b", nil},
		"a draft":                      {long(0xc0, draft, 1, 'a', 0), Unknown, "a", "", nil},
		"a draft with long IDs":        {long(0xc0, draft, append(append([]byte{21}, bytes.Repeat([]byte{'a'}, 21)...), 0)...), Unknown, "aaaaaaaaaaaaaaaaaaaaa", "", nil},
		"version 1 with a long ID":     {long(0xc0, v1, append(append([]byte{21}, bytes.Repeat([]byte{'a'}, 21)...), 0)...), 0, "", "", ErrNotQUIC},
		"version 1 with a long source": {long(0xc0, v1, append([]byte{0, 21}, bytes.Repeat([]byte{'a'}, 21)...)...), 0, "", "", ErrNotQUIC},
		"version 1 without fixed bit":  {long(0x80, v1, 0, 0), Initial, "", "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			h, err := ParseHeader(c.b)
			if err == nil && h.Greased != (c.b[0]&fixedBit == 0) {
				t.Errorf("greased: %t", h.Greased)
			}
			if !errors.Is(err, c.err) || h.Kind != c.kind || string(h.DestID) != c.dest || string(h.SrcID) != c.src {
				t.Errorf("%v %q %q, %v", h.Kind, h.DestID, h.SrcID, err)
			}
		})
	}
}

func TestParseHeaderDoesNotAllocate(t *testing.T) {
	b := vector(t, "rfc9001-a2.hex")
	if n := testing.AllocsPerRun(100, func() { ParseHeader(b) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestKindString(t *testing.T) {
	for k := range Unknown + 2 {
		if k.String() == "" {
			t.Errorf("kind %d has no name", k)
		}
	}
}

// RFC 9000, A.1.
func TestVarint(t *testing.T) {
	for text, want := range map[string]uint64{
		"\xc2\x19\x7c\x5e\xff\x14\xe8\x8c": 151_288_809_941_952_652, "\x9d\x7f\x3e\x7d": 494_878_333, "\x7b\xbd": 15_293, "\x25": 37, "\x40\x25": 37,
	} {
		if v, rest, ok := varint([]byte(text + "x")); !ok || v != want || string(rest) != "x" {
			t.Errorf("%x: %d %q %v", text, v, rest, ok)
		}
		if _, _, ok := varint([]byte(text[:len(text)-1])); ok {
			t.Errorf("%x without its last byte is a number", text)
		}
	}
}

// RFC 9000, A.3.
func TestFullNumber(t *testing.T) {
	for _, c := range []struct {
		largest, truncated int64
		bits               int
		want               int64
	}{
		{0xa82f30ea, 0x9b32, 16, 0xa82f9b32}, {-1, 0, 8, 0}, {-1, 0xff, 8, 0xff}, {0xfe, 0, 8, 0x100}, {0x100, 0xff, 8, 0xff}, {0x17f, 0, 8, 0x200}, {0x17e, 0, 8, 0x100},
	} {
		if n := fullNumber(c.largest, c.truncated, c.bits); n != c.want {
			t.Errorf("%#x after %#x, %d bits: %#x, want %#x", c.truncated, c.largest, c.bits, n, c.want)
		}
	}
}
