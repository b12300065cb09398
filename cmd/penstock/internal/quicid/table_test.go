package quicid

import (
	"math/rand/v2"
	"testing"
	"time"
)

func id(t testing.TB, text string) ID {
	id, ok := NewID([]byte(text))
	if !ok {
		t.Helper()
		t.Fatalf("%q is no ID", text)
	}
	return id
}

func TestID(t *testing.T) {
	for _, text := range []string{"", "123456789012345678901"} {
		if got, ok := NewID([]byte(text)); ok {
			t.Errorf("%q: %v", text, got)
		}
	}
	if got := id(t, "a\xff"); got.String() != "61ff" || string(got.Bytes()) != "a\xff" || got.Len() != 2 {
		t.Errorf("%v", got)
	}
}

func TestTable(t *testing.T) {
	var table Table[string]
	now := time.Unix(0, 0)
	find := func(b string, whole bool, want string) {
		t.Helper()
		to, found, ok := table.Find([]byte(b), whole, now)
		if to != want || ok != (want != "") || ok && string(found.Bytes()) != b[:found.Len()] {
			t.Errorf("%q leads to %q by %v, %t; want %q", b, to, found, ok, want)
		}
	}
	find("abcdefgh", false, "")
	if !table.Use(id(t, "abcd"), "one", now) || !table.Use(id(t, "abcdefgh"), "two", now) || !table.Use(id(t, "zzzz"), "three", now) {
		t.Fatal("not learned")
	}
	find("abcdxxxxxx", false, "one")
	find("abcdefghxx", false, "two") // the longest
	find("abcdefgh", true, "two")
	find("abcdefghxx", true, "")
	find("abcd", true, "one")
	find("abc", false, "")
	find("zzzz", false, "three")

	// Nor can they who guess what follows an ID, and have longer ones lead elsewhere. One that is longer by more is another one.
	for _, longer := range []string{"abcde", "abcdef", "abcdefg"} {
		if table.Use(id(t, longer), "evil", now) {
			t.Errorf("%q was taken for an ID", longer)
		}
	}
	find("abcdefgx", false, "one")
	for _, short := range []string{"q", "qr", "qrs"} {
		if table.Use(id(t, short), "evil", now) {
			t.Errorf("%q was learned", short)
		}
	}
	find("qrst", false, "")

	// Whoever has seen an ID cannot have it lead elsewhere, neither now nor when its flow has ended.
	if table.Use(id(t, "abcd"), "evil", now) {
		t.Error("an ID was taken away")
	}
	table.Done(id(t, "abcd"), now)
	if table.Use(id(t, "abcd"), "evil", now) {
		t.Error("an idle ID was taken away")
	}
	find("abcdxx", false, "one")

	// It stays for a while, and is not idle while one of its flows is there.
	now = now.Add(Keep - 1)
	find("abcdxx", false, "one")
	use := func(text string) bool { return table.Use(id(t, text), "one", now) }
	for range 2 {
		if !use("abcd") {
			t.Fatal("not used again")
		}
	}
	table.Done(id(t, "abcd"), now)
	now = now.Add(Keep)
	find("abcdxx", false, "one")
	table.Done(id(t, "abcd"), now)
	now = now.Add(Keep)
	find("abcdxx", false, "")
	if n := table.Len(); n != 2 {
		t.Errorf("%d IDs", n)
	}
}

// A full table forgets idle IDs only.
func TestTableFull(t *testing.T) {
	table := Table[int]{most: 2}
	now := time.Unix(0, 0)
	a, b, c := id(t, "aaaa"), id(t, "bbbb"), id(t, "cccc")
	if !table.Use(a, 1, now) || !table.Use(b, 2, now) || table.Use(c, 3, now) {
		t.Fatal("two have room, and a third one has not")
	}
	table.Done(b, now)
	if !table.Use(c, 3, now) || table.Use(b, 2, now) || table.Len() != 2 {
		t.Error("an idle one makes room, and one in use does not")
	}
	if to, _, ok := table.Find([]byte("aaaa"), true, now); !ok || to != 1 {
		t.Errorf("%d, %t", to, ok)
	}
}

// The table does what a slow one does.
func TestTableModel(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	type known struct {
		to, flows int
		since     time.Time
	}
	var table Table[int]
	model := map[string]*known{}
	now := time.Unix(0, 0)
	text := func() string { return "abcdabcdabcdabcd"[rng.IntN(4):][:1+rng.IntN(12)] }
	for step := range 20_000 {
		now = now.Add(time.Duration(rng.Int64N(int64(Keep / 4))))
		for text, k := range model {
			if k.flows == 0 && now.Sub(k.since) >= Keep {
				delete(model, text)
			}
		}
		switch text := text(); rng.IntN(3) {
		case 0:
			to := rng.IntN(2)
			k := model[text]
			want := k != nil && k.to == to
			if k == nil && len(text) >= MinLen {
				want = true
				for n := max(1, len(text)-guesses); n < len(text); n++ {
					if before := model[text[:n]]; before != nil && before.to != to {
						want = false
					}
				}
			}
			if got := table.Use(id(t, text), to, now); got != want {
				t.Fatalf("seed %d, step %d: Use(%q, %d) is %t", seed, step, text, to, got)
			}
			if k == nil && want {
				k = &known{to: to}
				model[text] = k
			}
			if want {
				k.flows++
			}
		case 1:
			if k := model[text]; k != nil && k.flows > 0 {
				if k.flows--; k.flows == 0 {
					k.since = now
				}
				table.Done(id(t, text), now)
			}
		case 2:
			var want *known
			n := len(text)
			for ; n > 0 && want == nil; n-- {
				want = model[text[:n]]
			}
			to, _, ok := table.Find([]byte(text), false, now)
			if ok != (want != nil) || ok && to != want.to {
				t.Fatalf("seed %d, step %d: Find(%q) is %d, %t; want %v", seed, step, text, to, ok, want)
			}
			if got := table.Len(); got != len(model) {
				t.Fatalf("seed %d, step %d: %d IDs, want %d", seed, step, got, len(model))
			}
		}
	}
}
