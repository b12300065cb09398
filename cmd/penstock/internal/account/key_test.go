package account

import "testing"

// A stored key of a series is read back as it was, or refused.
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
