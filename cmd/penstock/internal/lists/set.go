package lists

import (
	"cmp"
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// A Set is a set of networks. It never changes. The zero value is empty.
//
// The networks of each family are sorted, and none contains another, so that the only one that may contain an address is the last one
// that does not begin after it. An index by the first 16 bits leaves few to look at. A network takes 12 bytes (IPv4) or 24 (IPv6), in
// an array without pointers, which the garbage collector does not look into. It is the array that the networks were read into: nothing is
// copied, so that reading a set takes no more memory than having it.
type Set struct {
	v4 family[uint32]
	v6 family[address6]
}

// family is the networks of one kind of addresses.
type family[A comparable] struct {
	first []uint32 // of each 16 bits: the index of the first network that begins there or later; nil: there are few
	all   []network[A]
}

// indexed is from how many networks on a family has an index, which takes 256 KiB.
const indexed = 4096

// A network is one of a family.
type network[A comparable] struct {
	addr A
	line uint32 // where it was written
	bits uint8
}

// address6 is an IPv6 address as two numbers, whose order is that of the addresses.
type address6 struct{ hi, lo uint64 }

// An Entry is a network of a set.
type Entry struct {
	Network netip.Prefix
	Line    uint32 // of the text where it was written, or whatever else the maker of the set counts
}

// NewSet returns the set of some networks. A network that another one contains is left out.
func NewSet(list []Entry) *Set {
	s := &Set{}
	for _, e := range list {
		s.add(e)
	}
	return s.finish()
}

// add adds a network to a set that is not finished.
func (s *Set) add(e Entry) {
	a, bits := e.Network.Addr(), uint8(e.Network.Bits())
	if a.Is4() {
		s.v4.all = append(s.v4.all, network[uint32]{number4(a), e.Line, bits})
	} else {
		s.v6.all = append(s.v6.all, network[address6]{number6(a), e.Line, bits})
	}
}

// finish makes a set of the networks that were added to it. A network that another one contains is left out.
func (s *Set) finish() *Set {
	s.v4.finish(cmp.Compare, begins4, func(a uint32) uint16 { return uint16(a >> 16) })
	s.v6.finish(address6.compare, address6.begins, func(a address6) uint16 { return uint16(a.hi >> 48) })
	return s
}

func (f *family[A]) finish(compare func(a, b A) int, begins func(a, b A, bits uint8) bool, head func(A) uint16) {
	if len(f.all) == 0 {
		*f = family[A]{}
		return
	}
	slices.SortFunc(f.all, func(a, b network[A]) int {
		if n := compare(a.addr, b.addr); n != 0 {
			return n
		}
		if a.bits != b.bits {
			return int(a.bits) - int(b.bits)
		}
		return cmp.Compare(a.line, b.line)
	})
	kept := f.all[:1]
	for _, n := range f.all[1:] {
		if last := &kept[len(kept)-1]; !begins(last.addr, n.addr, last.bits) { // or it begins in the one before, and so ends there too
			kept = append(kept, n)
		}
	}
	if f.all = kept; cap(kept)-len(kept) > len(kept)/4 {
		f.all = slices.Clone(kept)
	}
	if f.first = nil; len(f.all) < indexed {
		return
	}
	f.first = make([]uint32, 0, 1<<16+1)
	for i := range f.all {
		for h := int(head(f.all[i].addr)); len(f.first) <= h; {
			f.first = append(f.first, uint32(i))
		}
	}
	for len(f.first) <= 1<<16 {
		f.first = append(f.first, uint32(len(f.all)))
	}
}

// find returns the index of the last network that does not begin after an address; -1: there is none.
func (f *family[A]) find(head uint16, after func(A) bool) int {
	low, high := uint32(0), uint32(len(f.all))
	if f.first != nil {
		low, high = f.first[head], f.first[int(head)+1]
	}
	for low < high {
		if middle := low + (high-low)/2; after(f.all[middle].addr) {
			high = middle
		} else {
			low = middle + 1
		}
	}
	return int(low) - 1
}

// Lookup returns the network that contains an address. If one that was left out does, too, it returns that which contains it.
func (s *Set) Lookup(a netip.Addr) (Entry, bool) {
	switch a = spec.CanonicalAddr(a); {
	case a.Is4():
		n := number4(a)
		i := s.v4.find(uint16(n>>16), func(m uint32) bool { return m > n })
		if i < 0 || !begins4(s.v4.all[i].addr, n, s.v4.all[i].bits) {
			return Entry{}, false
		}
		return s.v4.entry(i, address4(s.v4.all[i].addr)), true
	case a.Is6():
		n := number6(a)
		i := s.v6.find(uint16(n.hi>>48), func(m address6) bool { return m.hi > n.hi || m.hi == n.hi && m.lo > n.lo })
		if i < 0 || !s.v6.all[i].addr.begins(n, s.v6.all[i].bits) {
			return Entry{}, false
		}
		return s.v6.entry(i, s.v6.all[i].addr.address()), true
	}
	return Entry{}, false
}

// Contains reports whether an address is in one of the networks.
func (s *Set) Contains(a netip.Addr) bool {
	_, ok := s.Lookup(a)
	return ok
}

// Len returns the number of networks.
func (s *Set) Len() int { return len(s.v4.all) + len(s.v6.all) }

// Bytes returns the memory that the set takes.
func (s *Set) Bytes() int {
	return 4*(len(s.v4.first)+len(s.v6.first)) + 12*len(s.v4.all) + 24*len(s.v6.all)
}

func (f *family[A]) entry(i int, a netip.Addr) Entry {
	return Entry{netip.PrefixFrom(a, int(f.all[i].bits)), f.all[i].line}
}

// begins4 reports whether the first bits of two addresses are the same.
func begins4(a, b uint32, bits uint8) bool { return (a^b)>>(32-bits) == 0 }

// begins is begins4 of IPv6.
func (a address6) begins(b address6, bits uint8) bool {
	if bits <= 64 {
		return (a.hi^b.hi)>>(64-bits) == 0
	}
	return a.hi == b.hi && (a.lo^b.lo)>>(128-bits) == 0
}

func (a address6) compare(b address6) int {
	if n := cmp.Compare(a.hi, b.hi); n != 0 {
		return n
	}
	return cmp.Compare(a.lo, b.lo)
}

func number4(a netip.Addr) uint32 {
	b := a.As4()
	return binary.BigEndian.Uint32(b[:])
}

func address4(n uint32) netip.Addr {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], n)
	return netip.AddrFrom4(b)
}

func number6(a netip.Addr) address6 {
	b := a.As16()
	return address6{binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])}
}

func (a address6) address() netip.Addr {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], a.hi)
	binary.BigEndian.PutUint64(b[8:], a.lo)
	return netip.AddrFrom16(b)
}
