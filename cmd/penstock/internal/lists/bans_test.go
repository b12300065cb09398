package lists

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"
)

func banned(n uint32) Ban {
	var a [4]byte
	binary.BigEndian.PutUint32(a[:], n)
	return Ban{Network: netip.PrefixFrom(netip.AddrFrom4(a), 32)}
}

// Whatever is banned and lifted when, clients are refused whose ban is there, and no others.
func TestRandomBans(t *testing.T) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	var b Bans
	now := time.Unix(1e9, 0)
	want := map[netip.Prefix]Ban{}
	for step := range 3000 {
		if r.IntN(20) == 0 {
			p := banned(r.Uint32N(2000)).Network
			b.Change(now, nil, []netip.Prefix{p})
			delete(want, p)
		}
		var add []Ban
		for range r.IntN(4) {
			x := banned(r.Uint32N(2000))
			if r.IntN(2) == 0 {
				x.Until = now.Add(time.Duration(r.IntN(600)) * time.Second)
			}
			if add = append(add, x); !x.over(now) {
				want[x.Network] = x
			}
		}
		b.Change(now, add, nil)
		if step%10 == 0 {
			now = now.Add(time.Second)
			b.Change(now, nil, nil)
			for p, x := range want {
				if x.over(now) {
					delete(want, p)
				}
			}
		}
		for range 20 {
			p := banned(r.Uint32N(2000)).Network
			if _, ok := want[p]; b.Contains(p.Addr()) != ok {
				t.Fatalf("step %d: %v is banned: %v, want %v", step, p, !ok, ok)
			}
		}
		if b.Len() != len(want) {
			t.Fatalf("step %d: %d bans, want %d", step, b.Len(), len(want))
		}
	}
}

// There are at most MaxBans, and those that are over make room.
func TestMostBans(t *testing.T) {
	var b Bans
	now := time.Unix(1e9, 0)
	for i := range uint32(MaxBans) {
		x := banned(i)
		if i < 10 {
			x.Until = now.Add(time.Second)
		}
		if _, err := b.Change(now, []Ban{x}, nil); err != nil {
			t.Fatal(err)
		}
	}
	more := banned(MaxBans)
	if _, err := b.Change(now, []Ban{more}, nil); err == nil || b.Contains(more.Network.Addr()) {
		t.Errorf("one too many: %v", err)
	}
	now = now.Add(time.Second)
	if _, err := b.Change(now, []Ban{more}, nil); err != nil || !b.Contains(more.Network.Addr()) || b.Contains(banned(3).Network.Addr()) || b.Len() != MaxBans-9 {
		t.Errorf("there is room: %v, %d", err, b.Len())
	}
}
