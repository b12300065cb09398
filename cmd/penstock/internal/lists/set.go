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
// that does not begin after it. An index by the first 16 bits leaves few to look at. A network takes 9 bytes (IPv4) or 21 (IPv6), in
// three arrays without pointers, which the garbage collector does not look into.
type Set struct {
	v4 family[uint32]
	v6 family[address6]
}

// family is the networks of one kind of addresses.
type family[A comparable] struct {
	first []uint32 // of each 16 bits: the index of the first network that begins there or later; nil: the family is empty
	addr  []A
	bits  []uint8
	line  []uint32 // where it was written
}

// address6 is an IPv6 address as two numbers, whose order is that of the addresses.
type address6 struct{ hi, lo uint64 }

// An Entry is a network of a set.
type Entry struct {
	Network netip.Prefix
	Line    uint32 // of the text where it was written, or whatever else the maker of the set counts
}

// NewSet returns the set of some networks. A network that another one contains is left out. The list is sorted in place.
func NewSet(list []Entry) *Set {
	slices.SortFunc(list, func(a, b Entry) int {
		return cmp.Or(a.Network.Addr().Compare(b.Network.Addr()), cmp.Compare(a.Network.Bits(), b.Network.Bits()), cmp.Compare(a.Line, b.Line))
	})
	s := &Set{}
	kept, n4, n6 := list[:0], 0, 0
	for _, e := range list {
		if n := len(kept); n > 0 && kept[n-1].Network.Contains(e.Network.Addr()) {
			continue // it begins in the one before, and so ends there too
		}
		if kept = append(kept, e); e.Network.Addr().Is4() {
			n4++
		} else {
			n6++
		}
	}
	s.v4.make(n4)
	s.v6.make(n6)
	for _, e := range kept {
		a, bits := e.Network.Addr(), uint8(e.Network.Bits())
		if a.Is4() {
			s.v4.add(number4(a), bits, e.Line, uint16(number4(a)>>16))
		} else {
			n := number6(a)
			s.v6.add(n, bits, e.Line, uint16(n.hi>>48))
		}
	}
	s.v4.finish()
	s.v6.finish()
	return s
}

func (f *family[A]) make(n int) {
	if n > 0 {
		f.first, f.addr, f.bits, f.line = make([]uint32, 0, 1<<16+1), make([]A, 0, n), make([]uint8, 0, n), make([]uint32, 0, n)
	}
}

func (f *family[A]) add(a A, bits uint8, line uint32, head uint16) {
	for len(f.first) <= int(head) {
		f.first = append(f.first, uint32(len(f.addr)))
	}
	f.addr, f.bits, f.line = append(f.addr, a), append(f.bits, bits), append(f.line, line)
}

func (f *family[A]) finish() {
	for f.addr != nil && len(f.first) <= 1<<16 {
		f.first = append(f.first, uint32(len(f.addr)))
	}
}

// find returns the index of the last network that does not begin after an address; -1: there is none.
func (f *family[A]) find(head uint16, after func(A) bool) int {
	if f.first == nil {
		return -1
	}
	low, high := f.first[head], f.first[int(head)+1]
	for low < high {
		if middle := low + (high-low)/2; after(f.addr[middle]) {
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
		if i < 0 || (n^s.v4.addr[i])>>(32-s.v4.bits[i]) != 0 {
			return Entry{}, false
		}
		return s.v4.entry(i, address4(s.v4.addr[i])), true
	case a.Is6():
		n := number6(a)
		i := s.v6.find(uint16(n.hi>>48), func(m address6) bool { return m.hi > n.hi || m.hi == n.hi && m.lo > n.lo })
		if i < 0 || !s.v6.addr[i].begins(n, s.v6.bits[i]) {
			return Entry{}, false
		}
		return s.v6.entry(i, s.v6.addr[i].address()), true
	}
	return Entry{}, false
}

// Contains reports whether an address is in one of the networks.
func (s *Set) Contains(a netip.Addr) bool {
	_, ok := s.Lookup(a)
	return ok
}

// Len returns the number of networks.
func (s *Set) Len() int { return len(s.v4.addr) + len(s.v6.addr) }

// Bytes returns the memory that the set takes.
func (s *Set) Bytes() int {
	return 4*(len(s.v4.first)+len(s.v6.first)) + 9*len(s.v4.addr) + 21*len(s.v6.addr)
}

func (f *family[A]) entry(i int, a netip.Addr) Entry {
	return Entry{netip.PrefixFrom(a, int(f.bits[i])), f.line[i]}
}

// begins reports whether the first bits of two addresses are the same.
func (a address6) begins(b address6, bits uint8) bool {
	if bits <= 64 {
		return (a.hi^b.hi)>>(64-bits) == 0
	}
	return a.hi == b.hi && (a.lo^b.lo)>>(128-bits) == 0
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
