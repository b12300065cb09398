package hold

import (
	"bytes"
	"errors"
	"testing"
)

// shared keeps what it was asked to intern, up to a number.
type shared struct {
	all  []string
	most int
}

func (s *shared) Intern(text string) (uint32, bool) {
	if len(s.all) == s.most {
		return 0, false
	}
	s.all = append(s.all, text)
	return uint32(len(s.all) - 1), true
}

func (s *shared) Text(n uint32) (string, bool) {
	if n >= uint32(len(s.all)) {
		return "", false
	}
	return s.all[n], true
}

func TestEncoding(t *testing.T) {
	for name, s := range map[string]Strings{"alone": nil, "shared": &shared{most: 10}, "full": &shared{}} {
		t.Run(name, func(t *testing.T) {
			var e Encoder
			e.Bytes([]byte("forgotten"))
			e.Reset()
			if s != nil {
				e.Share(s)
			}
			e.Uint(300)
			e.String("name")
			e.Fixed([]byte{1, 2, 3})
			e.Bytes([]byte("bytes"))
			decode := func(b []byte) (*Decoder, bool) {
				d := NewDecoder(b)
				if s != nil {
					d.Share(s)
				}
				n, text, fixed, more := d.Uint(), d.String(), d.Fixed(3), d.Bytes()
				return d, n == 300 && text == "name" && bytes.Equal(fixed, []byte{1, 2, 3}) && string(more) == "bytes"
			}
			if d, same := decode(e.Encoded()); !same || d.Err() != nil || d.More() {
				t.Errorf("decoded otherwise: %v", d.Err())
			}
			for n := range e.Encoded() {
				if d, same := decode(e.Encoded()[:n:n]); same || !errors.Is(d.Err(), ErrEncoding) || d.Uint() != 0 || d.Fixed(0) != nil {
					t.Errorf("%d bytes: %v", n, d.Err())
				}
			}
			d := NewDecoder(e.Encoded())
			d.Fail()
			if d.Uint() != 0 || d.String() != "" || d.Bytes() != nil || d.More() || d.Err() != ErrEncoding {
				t.Error("goes on after Fail")
			}
		})
	}
}

// Whatever a decoder is given, it returns parts of it or fails, and after that nothing.
func FuzzDecoder(f *testing.F) {
	var e Encoder
	e.Uint(1)
	e.String("text")
	e.Bytes([]byte("bytes"))
	f.Add(e.Encoded(), []byte{0, 1, 2, 3})
	f.Add([]byte{255, 255, 255, 255, 255, 255, 255, 255, 255, 1}, []byte{1, 2})
	f.Fuzz(func(t *testing.T, b, order []byte) {
		d := NewDecoder(b)
		d.Share(&shared{all: []string{"a", "b"}, most: 2})
		for _, what := range order {
			failed, got := d.Err() != nil, 0
			switch what % 4 {
			case 0:
				if n := d.Uint(); failed && n != 0 {
					got = 1
				}
			case 1:
				got = len(d.String())
			case 2:
				got = len(d.Bytes())
			case 3:
				got = len(d.Fixed(int(what) / 4))
			}
			if failed && (got != 0 || d.More()) || got > len(b)+1 {
				t.Fatalf("%d bytes of %d, failed %v", got, len(b), failed)
			}
		}
	})
}

// A number that is none of a string does not lead to another string.
func TestNumberOfNoString(t *testing.T) {
	s := &shared{all: []string{"name"}}
	for n, want := range map[uint64]string{1: "name", 2: "", 1 + 1<<32: "", 1<<64 - 1: ""} {
		var e Encoder
		e.Uint(n)
		d := NewDecoder(e.Encoded())
		d.Share(s)
		if got := d.String(); got != want || (d.Err() == nil) != (want != "") {
			t.Errorf("%d: %q, %v", n, got, d.Err())
		}
	}
}

func TestAddRestored(t *testing.T) {
	one := Restored{Flows: 1, Ended: 2, Holding: 3, Bytes: 4}
	one.Lost.Add(LossTLS, 5)
	sum := one
	sum.Add(&one)
	want := Restored{Flows: 2, Ended: 4, Holding: 6, Bytes: 8}
	want.Lost.Add(LossTLS, 10)
	if sum != want || sum.TotalLost() != 10 {
		t.Errorf("%+v", sum)
	}
}
