package counts

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/penstock/penstock/internal/testwait"
)

var flows = Layout{Name: "flows", Words: []string{"begun", "ended", "bytes"}, Key: 20, Rows: 100}
var members = Layout{Name: "members", Words: []string{"connects"}, Key: 40, Rows: 10}

func create(t testing.TB, layouts ...Layout) ([]atomic.Int64, *Memory) {
	t.Helper()
	mem := make([]atomic.Int64, Size(layouts...))
	m, err := Create(mem, layouts...)
	if err != nil {
		t.Fatal(err)
	}
	return mem, m
}

// contents returns what a table has, by key.
func contents(tb *Table) map[string]string {
	all := map[string]string{}
	for _, r := range tb.Rows() {
		all[r.Key()] = fmt.Sprint(values(r))
	}
	return all
}

func values(r *Row) (list []int64) {
	for i := range r.Words() {
		list = append(list, r.Words()[i].Load())
	}
	return list
}

func TestOpen(t *testing.T) {
	mem, m := create(t, flows, members)
	a := m.Table("flows").New("a")
	a.Words()[0].Add(3)
	a.Words()[2].Add(-1)
	m.Table("flows").New(strings.Repeat("k", 20)).Words()[1].Add(5)
	m.Table("members").New("").Words()[0].Add(9)
	if m.Table("other") != nil || len(m.Table("flows").Rows()) != 0 {
		t.Error("a table or rows that were never there")
	}
	again, err := Open(mem)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"a": "[3 0 -1]", strings.Repeat("k", 20): "[0 5 0]"}
	if got := contents(again.Table("flows")); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v; want %v", got, want)
	}
	if got := contents(again.Table("members")); fmt.Sprint(got) != "map[:[9]]" {
		t.Error(got)
	}
	if !again.Fits(flows, members) || again.Fits(flows, Layout{Name: "x", Words: []string{"w"}, Rows: 1}) {
		t.Error("Fits")
	}
	next := again.Table("flows").New("b") // beside the others
	next.Words()[0].Store(1)
	if third, err := Open(mem); err != nil || len(third.Table("flows").Rows()) != 3 {
		t.Errorf("%v", err)
	}
}

// A row that is removed does not come back, and its memory is not used again while somebody has it.
func TestRemove(t *testing.T) {
	mem, m := create(t, Layout{Name: "t", Words: []string{"w"}, Key: 8, Rows: 2})
	tb := m.Table("t")
	a, b := tb.New("a"), tb.New("b")
	a.Words()[0].Add(1)
	b.Words()[0].Add(2)
	a.Remove()
	a.Remove()
	if !tb.Full() {
		t.Error("the memory of a row that somebody has is free")
	}
	over := tb.New("c") // in the heap
	over.Words()[0].Add(3)
	a.Words()[0].Add(1)
	if again, err := Open(copied(mem)); err != nil || fmt.Sprint(contents(again.Table("t"))) != "map[b:[2]]" {
		t.Errorf("%v", err)
	}
	if tb.NotKept() != 1 {
		t.Errorf("%d rows not kept", tb.NotKept())
	}
	a = nil
	testwait.Until(t, "the memory of a row that nobody has is free", func() bool {
		runtime.GC()
		return !tb.Full()
	})
	if d := tb.New("d"); d.Words()[0].Load() != 0 {
		t.Errorf("a new row begins with %d", d.Words()[0].Load())
	}
	runtime.KeepAlive(b)
}

func copied(mem []atomic.Int64) []atomic.Int64 {
	out := make([]atomic.Int64, len(mem))
	for i := range mem {
		out[i].Store(mem[i].Load())
	}
	return out
}

// A move that ended at any of its steps is finished by the next process.
func TestMoveIsFinished(t *testing.T) {
	layout := Layout{Name: "t", Words: []string{"x", "y", "z"}, Key: 8, Rows: 4}
	fill := func() (mem []atomic.Int64, tb *Table, a, b *Row) {
		mem, m := create(t, layout)
		tb = m.Table("t")
		a, b = tb.New("a"), tb.New("b")
		for i := range 3 {
			a.Words()[i].Store(int64(i * 10)) // the first is 0
			b.Words()[i].Store(int64(i * 7))
		}
		return mem, tb, a, b
	}
	check := func(what string, mem []atomic.Int64) {
		t.Helper()
		m, err := Open(mem)
		if err != nil {
			t.Fatal(what, err)
		}
		if got := fmt.Sprint(contents(m.Table("t"))); got != "map[a:[0 0 0] b:[0 17 34]]" {
			t.Error(what, got)
		}
	}
	mem, _, a, b := fill()
	a.MoveTo(b)
	check("whole", mem)
	// The stores of a move, one after the other.
	for steps := range 12 {
		mem, tb, a, b := fill()
		n := 0
		step := func(f func()) {
			if n < steps {
				f()
			}
			n++
		}
		store := func(at int, v int64) func() { return func() { tb.mem[at].Store(v) } }
		tb.mem[fromAt].Store(int64(a.slot))
		tb.mem[toAt].Store(int64(b.slot))
		tb.mem[movingAt].Store(rowMove)
		for i := 1; i < 2; i++ {
			step(store(wordAt, int64(i)))
			step(store(fromBeforeAt, 10))
			step(store(toBeforeAt, 7))
			step(store(movingAt, wordMove))
			step(func() { b.Words()[i].Add(10) })
			step(func() { a.Words()[i].Add(-10) })
			step(store(movingAt, rowMove))
		}
		check(fmt.Sprint(steps, " steps"), mem)
	}
	for _, at := range []int{fromAt, toAt, movingAt, wordAt} {
		mem, tb, _, _ := fill()
		tb.mem[movingAt].Store(wordMove)
		tb.mem[toAt].Store(1)
		tb.mem[at].Store(77)
		if _, err := Open(mem); err == nil {
			t.Errorf("word %d damaged: accepted", at)
		}
	}
	heap := Heap(layout)
	a, b = heap.New("a"), heap.New("b")
	a.Words()[2].Store(5)
	a.MoveTo(b)
	if a.Words()[2].Load() != 0 || b.Words()[2].Load() != 5 {
		t.Error("rows in the heap")
	}
}

// Another version finds the words that it knows by name, and keeps the others for the version after
// it.
func TestOtherVersions(t *testing.T) {
	oldMem, old := create(t, flows, members)
	r := old.Table("flows").New("a")
	for i := range r.Words() {
		r.Words()[i].Store(int64(10 + i))
	}
	old.Table("members").New("m").Words()[0].Store(7)

	newer := Layout{Name: "flows", Words: []string{"bytes", "datagrams", "begun"}, Key: 10, Rows: 50}
	if old.Fits(newer) {
		t.Fatal("other words fit")
	}
	reopen := func(mem []atomic.Int64) *Memory {
		m, err := Open(mem)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	old = reopen(oldMem)
	mem, next := create(t, old.Extended(newer)...)
	old.CopyTo(next)
	copied := next
	for _, next = range []*Memory{copied, reopen(mem)} { // the process that has copied it counts on, and so does the one after it
		if got := fmt.Sprint(contents(next.Table("flows")), contents(next.Table("members"))); got != "map[a:[12 0 10 11]] map[m:[7]]" {
			t.Error(got)
		}
	}
	tb := next.Table("flows")
	if u := tb.Unknown(3, "end"); len(u) != 1 || u[0] != 3 || tb.Unknown(3, "x") != nil {
		t.Error(u)
	}
	if !next.Fits(newer) {
		t.Error("the extended memory does not fit")
	}

	mem, back := create(t, next.Extended(flows, members)...)
	next.CopyTo(back)
	back = reopen(mem)
	if got := fmt.Sprint(contents(back.Table("flows")), contents(back.Table("members"))); got != "map[a:[10 11 12 0]] map[m:[7]]" {
		t.Error(got)
	}
}

// What is copied to memory that has not enough room is counted by this process only.
func TestCopyToSmallMemory(t *testing.T) {
	mem, m := create(t, Layout{Name: "t", Words: []string{"w"}, Key: 8, Rows: 4})
	for i, key := range []string{"a", "b", "c"} {
		m.Table("t").New(key).Words()[0].Store(int64(i + 1))
	}
	m, err := Open(mem)
	if err != nil {
		t.Fatal(err)
	}
	_, next := create(t, Layout{Name: "t", Words: []string{"w"}, Key: 8, Rows: 2})
	m.CopyTo(next)
	tb := next.Table("t")
	if len(tb.Rows()) != 2 || tb.NotKept() != 1 {
		t.Errorf("%d rows, %d not kept", len(tb.Rows()), tb.NotKept())
	}
	tb.Take("d") // takes the room of those that nobody has asked for
	if len(tb.Rows()) != 0 {
		t.Errorf("%d rows", len(tb.Rows()))
	}
}

// Rows with the same key, which versions before had made of those that they copied, are one row with the sums, whenever the
// process that adds them is killed.
func TestRowsOfOneKey(t *testing.T) {
	fill := func() ([]atomic.Int64, *Table) {
		mem, m := create(t, Layout{Name: "t", Words: []string{"x", "y"}, Key: 8, Rows: 8})
		tb := m.Table("t")
		for i := range 3 {
			r := tb.New("a")
			r.Words()[0].Store(int64(i + 1))
			r.Words()[1].Store(int64(10 * i))
		}
		tb.New("b").Words()[0].Store(5)
		return mem, tb
	}
	for killed := range 3 {
		mem, tb := fill()
		if killed > 0 { // after the second row was added, and while the third one is
			for i := range 2 {
				tb.wordsOf(tb.row(0))[i].Add(tb.wordsOf(tb.row(1))[i].Swap(0))
			}
		}
		if killed > 1 {
			tb.mem[fromAt].Store(2)
			tb.mem[toAt].Store(0)
			tb.mem[movingAt].Store(rowMove)
		}
		for range 2 {
			m, err := Open(mem)
			if err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprint(contents(m.Table("t"))); got != "map[a:[6 30] b:[5 0]]" {
				t.Errorf("killed at %d: %s", killed, got)
			}
		}
		m, err := Open(mem)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 6 { // those that are left are free
			if r := m.Table("t").New(fmt.Sprint(i)); r.slot < 0 || r.Words()[0].Load() != 0 {
				t.Errorf("row %d is in slot %d and begins with %v", i, r.slot, values(r))
			}
		}
	}
}

func TestRefused(t *testing.T) {
	if _, err := Open(make([]atomic.Int64, 1000)); !errors.Is(err, ErrNew) {
		t.Error(err)
	}
	if _, err := Open(nil); err == nil {
		t.Error("no memory was accepted")
	}
	damage := map[string]func(mem []atomic.Int64, p place){
		"magic":              func(mem []atomic.Int64, _ place) { mem[magicAt].Add(1) },
		"version":            func(mem []atomic.Int64, _ place) { mem[versionAt].Add(1) },
		"a required feature": func(mem []atomic.Int64, _ place) { mem[requiredAt].Store(1 << 40) },
		"size":               func(mem []atomic.Int64, _ place) { mem[sizeAt].Store(int64(len(mem) + 1)) },
		"length":             func(mem []atomic.Int64, _ place) { mem[lengthAt].Store(1 << 40) },
		"directory":          func(mem []atomic.Int64, _ place) { mem[headerWords].Add(1) },
		"rows":               func(mem []atomic.Int64, p place) { mem[p.At+usedAt].Store(101) },
		"state":              func(mem []atomic.Int64, p place) { mem[p.At+tableWords].Store(3) },
		"key":                func(mem []atomic.Int64, p place) { mem[p.At+tableWords+1].Add(1) },
		"length of key":      func(mem []atomic.Int64, p place) { mem[p.At+tableWords].Add(100 << 8) },
	}
	for what, do := range damage {
		mem, m := create(t, flows)
		m.Table("flows").New("a")
		m.Table("flows").New("b")
		do(mem, m.Table("flows").place)
		if _, err := Open(mem); err == nil || errors.Is(err, ErrNew) {
			t.Errorf("%s: %v", what, err)
		}
	}
	mem, _ := create(t, flows)
	mem[optionalAt].Store(1 << 50)
	if _, err := Open(mem); err != nil {
		t.Errorf("an optional feature is not ignored: %v", err)
	}
	for _, l := range []Layout{{Name: "t", Rows: 1}, {Name: "t", Words: []string{"w", "w"}, Rows: 1}, {Name: "t", Words: []string{"w"}}, {Words: []string{"w"}, Rows: 1}} {
		if _, err := Create(make([]atomic.Int64, 10000), l); err == nil {
			t.Errorf("%+v was accepted", l)
		}
	}
	if _, err := Create(make([]atomic.Int64, 10), flows); err == nil {
		t.Error("too little memory was accepted")
	}
}

// Take finds the rows of the process before, and gives up those that nobody has taken when it needs
// their room.
func TestTake(t *testing.T) {
	layout := Layout{Name: "t", Words: []string{"w"}, Key: 8, Rows: 3}
	mem, m := create(t, layout)
	for i, key := range []string{"a", "b", "c"} {
		m.Table("t").Take(key).Words()[0].Store(int64(i + 1))
	}
	again, err := Open(mem)
	if err != nil {
		t.Fatal(err)
	}
	tb := again.Table("t")
	b := tb.Take("b")
	if b.Words()[0].Load() != 2 || len(tb.Rows()) != 2 {
		t.Error("the row was not found")
	}
	d, e, f := tb.Take("d"), tb.Take("e"), tb.Take("f")
	if d.slot < 0 || e.slot < 0 || f.slot >= 0 || d.Words()[0].Load() != 0 || len(tb.Rows()) != 0 || b.Words()[0].Load() != 2 {
		t.Errorf("slots %d, %d, %d", d.slot, e.slot, f.slot)
	}
}

// A table is compared with a map, through many openings.
func TestAgainstMap(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	layout := Layout{Name: "t", Words: []string{"x", "y"}, Key: 16, Rows: 64}
	mem, m := create(t, layout)
	rows, want := map[string]*Row{}, map[string][2]int64{}
	for range 3000 {
		key := fmt.Sprint("key", rnd.IntN(80))
		r := rows[key]
		switch op := rnd.IntN(100); {
		case op == 0:
			for _, r := range rows { // what is in the heap ends with the process
				if r.slot < 0 {
					delete(want, r.key)
				}
			}
			mem = copied(mem) // the rows of the process before are gone with it
			var err error
			if m, err = Open(mem); err != nil {
				t.Fatal(err)
			}
			rows = map[string]*Row{}
			for _, r := range m.Table("t").Rows() {
				rows[r.Key()] = r
			}
		case r == nil:
			rows[key] = m.Table("t").New(key)
			want[key] = [2]int64{}
		case op < 20:
			r.Remove()
			delete(rows, key)
			delete(want, key)
		default:
			i, n := rnd.IntN(2), int64(rnd.IntN(100))
			r.Words()[i].Add(n)
			w := want[key]
			w[i] += n
			want[key] = w
		}
		if len(rows) != len(want) {
			t.Fatalf("%d rows, want %d", len(rows), len(want))
		}
		for key, w := range want {
			if got := values(rows[key]); got[0] != w[0] || got[1] != w[1] {
				t.Fatalf("%s: %v; want %v", key, got, w)
			}
		}
	}
}

// Whatever the memory has, Open ends with an error or with rows that can be used.
func FuzzOpen(f *testing.F) {
	mem, m := create(f, Layout{Name: "t", Words: []string{"x", "y"}, Key: 8, Rows: 2})
	m.Table("t").New("a").Words()[1].Store(5)
	r := m.Table("t").New("b")
	r.Remove()
	var good []byte
	for i := range mem {
		good = append(good, unpack(mem[i:], 8)...)
	}
	f.Add(good, 0, int64(0), false)
	for _, i := range []int{sizeAt, lengthAt, headerWords, headerWords + 5, m.Table("t").place.At, m.Table("t").place.At + tableWords} {
		f.Add(good, i, int64(1)<<40, true)
	}
	f.Fuzz(func(t *testing.T, b []byte, at int, word int64, fix bool) {
		b = b[:min(len(b), 1<<16)]
		mem := make([]atomic.Int64, len(b)/8)
		pack(mem, string(b[:len(mem)*8]))
		if len(mem) > 0 {
			mem[uint(at)%uint(len(mem))].Store(word)
		}
		if fix && len(mem) > headerWords { // otherwise nothing gets past the checksum
			if n := mem[lengthAt].Load(); n > 0 && n < int64(len(mem)-headerWords)*8 {
				mem[checksumAt].Store(checksum(unpack(mem[headerWords:], int(n))))
			}
		}
		m, err := Open(mem)
		if err != nil {
			return
		}
		for _, tb := range m.tables {
			for _, r := range tb.Rows() {
				r.Words()[0].Add(1)
				r.Remove()
			}
			tb.New("new").Words()[0].Add(1)
		}
		m.Extended(flows, members)
	})
}
