package quicid

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/penstock/penstock/internal/testnet"
)

func unhex(t testing.TB, text string) []byte {
	b, err := hex.DecodeString(text)
	if err != nil {
		t.Helper()
		t.Fatal(err)
	}
	return b
}

// vectors are those of draft-ietf-quic-load-balancers-21, appendix B, and the examples of its section 5.4.2. The draft prints its
// second one without leading zeros, which makes its first byte three digits long, and its last one under a configuration that
// its first byte does not have; here is what the rules of the draft give.
var vectors = []struct {
	config                  int
	key, server, nonce, cid string
}{
	{0, "", "c4605e", "4504cc4f", "07c4605e4504cc4f"},
	{1, "", "350d28b420", "03487d970b", "2a350d28b42003487d970b"},
	{0, "8f95f09245765f80256934e50c66207f", "ed793a", "ee080dbf", "0720b1d07b359d3c"},
	{1, "8f95f09245765f80256934e50c66207f", "ed793a51d49b8f5fab65", "ee080dbf48", "2fcc381bc74cb4fbad2823a3d1f8fed2"},
	{2, "8f95f09245765f80256934e50c66207f", "ed793a51d49b8f5f", "ee080dbf48c0d1e5", "504dd2d05a7b0de9b2b9907afb5ecf8cc3"},
	{0, "8f95f09245765f80256934e50c66207f", "ed793a51d49b8f5fab", "ee080dbf48c0d1e55d", "125779c9cc86beb3a3a4a3ca96fce4bfe0cdbc"},
	{0, "fdf726a9893ec05c0632d3956680baf0", "31441a", "9c69c275", "0767947d29be054a"},
}

func TestVectors(t *testing.T) {
	for _, v := range vectors {
		t.Run(v.cid, func(t *testing.T) {
			server, nonce, cid := unhex(t, v.server), unhex(t, v.nonce), unhex(t, v.cid)
			l, err := New(v.config, len(server), len(nonce), unhex(t, v.key))
			if err != nil {
				t.Fatal(err)
			}
			if got := l.Append(nil, server, nonce, true); !bytes.Equal(got, cid) {
				t.Errorf("made %x", got)
			}
			for _, more := range []string{"", "what follows"} {
				if got, ok := l.Server(append(bytes.Clone(cid), more...)); !ok || !bytes.Equal(got[:l.ServerLen()], server) {
					t.Errorf("with %q behind it: %x, %t", more, got, ok)
				}
			}
			for n := range cid {
				if got, ok := l.Server(cid[:n]); ok {
					t.Errorf("of %d bytes: %x", n, got)
				}
			}
			for config := range 8 {
				other := bytes.Clone(cid)
				other[0] = other[0]&0x1f | byte(config<<5)
				if _, ok := l.Server(other); ok != (config == v.config) {
					t.Errorf("configuration %d: %t", config, ok)
				}
			}
		})
	}
}

// Every layout finds the server in what it has made itself, and servers differ in IDs that are encrypted only by their key.
func TestLayouts(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	random := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		return b
	}
	n := 0
	for config := range Configs {
		for server := 1; server <= MaxServer; server++ {
			for nonce := MinNonce; server+nonce <= MaxBlock; nonce++ {
				key := random(KeySize)
				for _, l := range []*Layout{must(t, config, server, nonce, nil), must(t, config, server, nonce, key)} {
					id := random(server)
					cid := l.Append(nil, id, random(nonce), rng.IntN(2) == 0)
					if got, ok := l.Server(cid); !ok || !bytes.Equal(got[:server], id) {
						t.Fatalf("seed %d: %+v: %x has %x, %t, want %x", seed, l, cid, got, ok, id)
					}
					n++
				}
			}
		}
	}
	if want := 2 * Configs * 120; n != want {
		t.Errorf("%d layouts, want %d", n, want)
	}
}

func must(t testing.TB, config, server, nonce int, key []byte) *Layout {
	l, err := New(config, server, nonce, key)
	if err != nil {
		t.Helper()
		t.Fatal(err)
	}
	return l
}

// The first byte is the server's, whatever it writes there: also what the draft keeps for IDs without a server.
func TestCloud(t *testing.T) {
	server := unhex(t, "1122334455667788")
	for first := range 256 {
		cid := append([]byte{byte(first)}, server...)
		if got, ok := Cloud.Server(cid); !ok || !bytes.Equal(got[:Cloud.ServerLen()], server) {
			t.Errorf("%x: %x, %t", cid, got, ok)
		}
	}
	if _, ok := Cloud.Server(server); ok {
		t.Error("8 bytes are too few")
	}
	if got := Cloud.Append(nil, server, nil, false); !bytes.Equal(got, append([]byte{0}, server...)) {
		t.Errorf("%x", got)
	}
}

func TestNewErrors(t *testing.T) {
	for _, c := range []struct{ config, server, nonce, key int }{
		{-1, 3, 4, 0}, {7, 3, 4, 0}, {0, 0, 4, 0}, {0, 16, 4, 0}, {0, 3, 3, 0}, {0, 3, 17, 0}, {0, 15, 5, 0}, {0, 3, 4, 15}, {0, 3, 4, 32},
	} {
		if l, err := New(c.config, c.server, c.nonce, make([]byte, c.key)); err == nil {
			t.Errorf("%v: %+v", c, l)
		}
	}
}

func TestServerAllocates(t *testing.T) {
	if testnet.RaceEnabled {
		t.Skip("a sync.Pool forgets on purpose")
	}
	l := must(t, 0, 9, 9, make([]byte, KeySize))
	id := l.Append(nil, make([]byte, 9), make([]byte, 9), true)
	if n := testing.AllocsPerRun(100, func() { l.Server(id) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// Nobody's bytes make a layout panic, and what it finds is what it would have written.
func FuzzLayout(f *testing.F) {
	for _, v := range vectors {
		f.Add(uint8(v.config), uint8(len(v.server)/2), uint8(len(v.nonce)/2), unhex(f, v.key), unhex(f, v.cid))
	}
	f.Fuzz(func(t *testing.T, config, server, nonce uint8, key, id []byte) {
		Cloud.Server(id)
		l, err := New(int(config), int(server), int(nonce), key)
		if err != nil {
			return
		}
		s, ok := l.Server(id)
		if !ok {
			return
		}
		if l.block != nil && l.server+l.nonce != 16 && l.server <= l.nonce {
			return // the nonce is not decrypted
		}
		n := id[1+l.server : 1+l.server+l.nonce]
		if l.block != nil {
			h := new(halves)
			l.decrypt(h, id[1:1+l.server+l.nonce])
			n = h.plain[l.server : l.server+l.nonce]
		}
		again := l.Append(nil, s[:l.server], n, false)
		if want := append([]byte{id[0] &^ 0x1f}, id[1:1+l.server+l.nonce]...); !bytes.Equal(again, want) {
			t.Errorf("%x became %x", want, again)
		}
	})
}

func BenchmarkServer(b *testing.B) {
	for _, n := range [][2]int{{3, 4}, {8, 8}, {10, 5}} {
		l := must(b, 0, n[0], n[1], make([]byte, KeySize))
		id := l.Append(nil, make([]byte, n[0]), make([]byte, n[1]), true)
		b.Run(fmt.Sprintf("server=%d/nonce=%d", n[0], n[1]), func(b *testing.B) {
			for b.Loop() {
				l.Server(id)
			}
		})
	}
}
