package ledger

import (
	"reflect"
	"strings"
	"testing"
)

// field is a pair of methods, X and SetX.
type field struct {
	name     string
	get, set reflect.Value
	want     []reflect.Value
}

// fields returns the pairs of methods of v.
func fields(v any) (all []field) {
	of := reflect.ValueOf(v)
	for i := range of.NumMethod() {
		name, isSet := strings.CutPrefix(of.Type().Method(i).Name, "Set")
		if get := of.MethodByName(name); isSet && get.IsValid() {
			all = append(all, field{name: of.Type().Name() + "." + name, get: get, set: of.Method(i)})
		}
	}
	return all
}

// filled returns a value of a type, with all of its bits depending on seed.
func filled(t reflect.Type, seed uint64) reflect.Value {
	v := reflect.New(t).Elem()
	x := seed * 0x9e3779b97f4a7c15
	switch t.Kind() {
	case reflect.Int:
		v.SetInt(int64(x & 0x7fffffff))
	case reflect.Int32, reflect.Int64:
		v.SetInt(int64(x) >> (64 - t.Bits()))
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(x >> (64 - t.Bits()))
	case reflect.Array:
		for i := range t.Len() {
			v.Index(i).Set(filled(t.Elem(), seed+uint64(i)*77))
		}
	case reflect.Struct:
		for i := range t.NumField() {
			v.Field(i).Set(filled(t.Field(i).Type, seed+uint64(i)*1001))
		}
	default:
		panic(t)
	}
	return v
}

// TestFields: every field of a record keeps its value, whatever the others are set to.
func TestFields(t *testing.T) {
	l := small(t)
	for kind, parts := range map[string]func(r Record) []any{
		"stream":   func(r Record) []any { return []any{r, r.Half(0), r.Half(1)} },
		"datagram": func(r Record) []any { return []any{r, r.Gram(), r.Gram().Moved(0), r.Gram().Moved(1)} },
	} {
		t.Run(kind, func(t *testing.T) {
			r := l.Begin(99)
			var all []field
			for _, part := range parts(r) {
				all = append(all, fields(part)...)
			}
			if len(all) < 20 {
				t.Fatalf("only %d fields", len(all))
			}
			if kind == "datagram" {
				r.SetKind(KindDatagram)
			} else {
				r.SetKind(KindStream)
			}
			blob := "a blob of as many bytes as a record holds itself"[:len(r.inline())]
			if !l.SetBlob(r, []byte(blob)) || l.Arena().Used() != 0 {
				t.Fatalf("no room for %d bytes", len(blob))
			}
			for i := range all {
				f := &all[i]
				for j := range f.set.Type().NumIn() {
					f.want = append(f.want, filled(f.set.Type().In(j), uint64(100*i+j+1)))
				}
				f.set.Call(f.want)
			}
			for _, f := range all {
				got := f.get.Call(nil)
				for i, want := range f.want {
					if !reflect.DeepEqual(got[i].Interface(), want.Interface()) {
						t.Errorf("%s is %v, want %v", f.name, got[i], want)
					}
				}
			}
			r.SetKind(KindStream)
			if kind == "datagram" {
				r.SetKind(KindDatagram)
			}
			if b, ok := l.Blob(r); string(b) != blob || !ok {
				t.Errorf("blob %q", b)
			}
			for i, b := range l.records[99*RecordSize-8 : 99*RecordSize] {
				if b != 0 {
					t.Errorf("byte %d before the record was written", 8-i)
				}
			}
		})
	}
}

// TestBlob: a blob moves between the record and a block, and none of its blocks is lost.
func TestBlob(t *testing.T) {
	l := small(t)
	r := l.Begin(1)
	if b, ok := l.Blob(r); len(b) != 0 || !ok {
		t.Errorf("a new record has a blob of %d bytes", len(b))
	}
	for i, n := range []int{10, 20, 0, 40, 41, 4096, 3, 1000, 0, 5, 6} {
		p := []byte(strings.Repeat(string(rune('a'+i)), n))
		if !l.SetBlob(r, p) {
			t.Fatalf("no room for %d bytes", n)
		}
		if b, ok := l.Blob(r); string(b) != string(p) || !ok {
			t.Errorf("blob %q, want %q", b, p)
		}
		if ref, _ := r.BlobBlock(); ref == 0 != (l.Arena().Used() == 0) {
			t.Errorf("blob of %d bytes: reference %#x, %d bytes used", n, ref, l.Arena().Used())
		}
	}
	if l.SetBlob(r, make([]byte, MaxBlob+1)) {
		t.Error("a blob that is too large is taken")
	}
	r.SetErrno(0xffff)
	if _, n := r.BlobBlock(); n != 6 {
		t.Errorf("%d bytes after SetErrno", n)
	}
}

func TestStrings(t *testing.T) {
	l := small(t)
	long := strings.Repeat("x", MaxString)
	refs := make(map[string]uint32)
	for _, s := range []string{"", "a", "tcp://:80", long, "\x00\xff"} {
		ref, ok := l.Intern(s)
		again, _ := l.Intern(s)
		if !ok || ref != again {
			t.Errorf("%q: %d, %d, %v", s, ref, again, ok)
		}
		refs[s] = ref
	}
	if _, ok := l.Intern(long + "x"); ok {
		t.Error("a string that is too long is taken")
	}
	m := reopen(t, l)
	for s, ref := range refs {
		if got, ok := m.String(ref); got != s || !ok {
			t.Errorf("%d is %q, want %q", ref, got, s)
		}
		if got, _ := m.Intern(s); got != ref {
			t.Errorf("%q is %d, was %d", s, got, ref)
		}
	}
	if _, ok := m.String(refs[long] + 1); ok {
		t.Error("the middle of a string is a string")
	}
	for i := range StringsSize {
		if _, ok := l.Intern(long[:250] + string(rune('0'+i%10)) + string(rune('a'+i/10%26)) + string(rune('a'+i/260%26)) + string(rune('a'+i/6760%26))); !ok {
			if i < StringsSize/260 {
				t.Errorf("full after %d strings", i)
			}
			break
		}
	}
	if _, ok := l.Intern("one more" + long[:200]); ok {
		t.Error("a table that is full takes a string")
	}
	reopen(t, l)
}

func TestStats(t *testing.T) {
	type inner struct{ X, Y uint64 }
	type first struct {
		A int64
		B [3]int64
		C inner
	}
	type second struct {
		C     inner
		B     [4]int64
		D, AA int64
		E     [2]inner
	}
	l := small(t)
	for _, bad := range []func() error{
		func() error { _, err := StatsOf[struct{ A int32 }](l); return err },
		func() error { _, err := StatsOf[struct{ A *int64 }](l); return err },
		func() error { _, err := StatsOf[struct{ A [5000]int64 }](l); return err },
	} {
		if bad() == nil {
			t.Error("a type that is no struct of words is taken")
		}
	}
	s, err := StatsOf[first](l)
	if err != nil || *s != (first{}) {
		t.Fatalf("%+v, %v", s, err)
	}
	*s = first{1, [3]int64{2, 3, 4}, inner{5, 6}}
	if again, err := StatsOf[first](reopen(t, l)); err != nil || *again != *s {
		t.Errorf("%+v, %v", again, err)
	}
	m := reopen(t, l)
	u, err := StatsOf[second](m)
	if want := (second{C: inner{5, 6}, B: [4]int64{2, 3, 4, 0}}); err != nil || *u != want {
		t.Errorf("%+v, %v, want %+v", u, err, want)
	}
	u.B[0]++
	if back, err := StatsOf[first](reopen(t, m)); err != nil || *back != (first{0, [3]int64{3, 3, 4}, inner{5, 6}}) {
		t.Errorf("%+v, %v", back, err)
	}
}

func BenchmarkRecord(b *testing.B) {
	l := small(b)
	t := l.Turn()
	b.Run("stores=8", func(b *testing.B) {
		var in int64
		for b.Loop() {
			in += 100
			h := l.Record(5).Half(1)
			t.SetCounts(in, in)
			t.Set(1, PhaseReading, 0)
			t.Set(1, PhaseRead, 100)
			h.SetIn(in)
			h.SetOut(in)
			h.SetSpliced(in)
			t.Set(1, PhaseNone, 0)
		}
	})
}
