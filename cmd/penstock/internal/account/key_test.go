package account

import "testing"

// The key of a series is what a worker before this one has stored, or none.
func FuzzKey(f *testing.F) {
	k := Key{Listener: "web", Route: "route", Group: "group", Member: "tcp://192.0.2.1:80"}
	f.Add(k.encode())
	f.Add("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01")
	f.Fuzz(func(t *testing.T, text string) {
		k, ok := decodeKey(text)
		if !ok {
			return
		}
		if again, ok := decodeKey(k.encode()); !ok || again != k {
			t.Errorf("%q: %+v becomes %+v", text, k, again)
		}
	})
}
