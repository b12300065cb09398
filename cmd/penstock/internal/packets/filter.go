package packets

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/net/bpf"
)

// A Term matches the packets of TCP and UDP between two ends, in both directions. What is zero of an end is any.
type Term struct{ A, B End }

// An End is an end of a connection.
type End struct {
	Network netip.Prefix
	Port    uint16
}

// At returns the end at an address; zero: any.
func At(a netip.AddrPort) End {
	ip := plain(a).Addr()
	if !ip.IsValid() || ip.IsUnspecified() {
		return End{Port: a.Port()}
	}
	return End{Network: netip.PrefixFrom(ip, ip.BitLen()), Port: a.Port()}
}

// contains reports whether an address is at the end.
func (e *End) contains(a netip.AddrPort) bool {
	return (!e.Network.IsValid() || e.Network.Contains(a.Addr())) && (e.Port == 0 || e.Port == a.Port())
}

// covers reports whether a filter of terms takes packets between two addresses.
func covers(terms []Term, a, b netip.AddrPort) bool {
	for _, t := range terms {
		if t.A.contains(a) && t.B.contains(b) || t.A.contains(b) && t.B.contains(a) {
			return true
		}
	}
	return false
}

// maxInstructions is what the kernel takes: BPF_MAXINSNS, include/uapi/linux/bpf_common.h.
const maxInstructions = 4096

// filter returns a program that takes packets which match one of the terms, or all of TCP and UDP if the terms are too many. Packets begin
// with the header of IP.
func filter(terms []Term) []bpf.Instruction {
	program, fits := assemble(terms)
	if !fits {
		program, _ = assemble([]Term{{}})
	}
	return append(program, bpf.RetConstant{Val: 0})
}

// Join returns the terms of both, or one that takes all of TCP and UDP if they are too many for the kernel: then none has to be added
// any more.
func Join(terms, more []Term) []Term {
	all := append(terms, more...)
	if _, fits := assemble(all); !fits {
		return []Term{{}}
	}
	return all
}

// assemble returns a program that takes packets which match one of the terms, and lets others go on behind it; false: it is too long.
func assemble(terms []Term) (program []bpf.Instruction, fits bool) {
	for _, t := range terms {
		for _, v6 := range []bool{false, true} {
			if !t.of(v6) {
				continue
			}
			program = append(program, path(v6, t.A, t.B)...)
			program = append(program, path(v6, t.B, t.A)...)
		}
		if len(program) >= maxInstructions {
			return nil, false
		}
	}
	return program, true
}

// of reports whether packets of a family can match.
func (t *Term) of(v6 bool) bool {
	for _, n := range []netip.Prefix{t.A.Network, t.B.Network} {
		if n.IsValid() && n.Addr().Is4() == v6 {
			return false
		}
	}
	return true
}

// skip stands for a jump to the end of a path.
const skip = 255

// path returns instructions that take packets of a family from one end to another, and let others go on behind the path.
func path(v6 bool, from, to End) []bpf.Instruction {
	equal := func(v uint32) bpf.Instruction {
		return bpf.JumpIf{Cond: bpf.JumpEqual, Val: v, SkipFalse: skip}
	}
	version, protocol, source, target := uint32(0x40), uint32(9), uint32(12), uint32(16)
	if v6 {
		version, protocol, source, target = 0x60, 6, 8, 24
	}
	b := []bpf.Instruction{
		bpf.LoadAbsolute{Off: 0, Size: 1}, bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: 0xf0}, equal(version),
		bpf.LoadAbsolute{Off: protocol, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: TCP, SkipTrue: 1}, equal(UDP),
	}
	for _, e := range []struct {
		at uint32
		n  netip.Prefix
	}{{source, from.Network}, {target, to.Network}} {
		for i, bits := 0, e.n.Bits(); e.n.IsValid() && bits > 0; i, bits = i+4, bits-32 {
			mask := ^uint32(0) << (32 - min(bits, 32))
			b = append(b, bpf.LoadAbsolute{Off: e.at + uint32(i), Size: 4}, bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: mask},
				equal(mask&binary.BigEndian.Uint32(e.n.Addr().AsSlice()[i:])))
		}
	}
	if v6 {
		b = append(b, bpf.LoadConstant{Dst: bpf.RegX, Val: 40})
	} else {
		b = append(b, bpf.LoadAbsolute{Off: 6, Size: 2}, bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: 0x1fff, SkipTrue: skip}, // a later fragment has no ports
			bpf.LoadMemShift{Off: 0})
	}
	for i, port := range []uint16{from.Port, to.Port} {
		if port != 0 {
			b = append(b, bpf.LoadIndirect{Off: uint32(2 * i), Size: 2}, equal(uint32(port)))
		}
	}
	b = append(b, bpf.RetConstant{Val: 1<<32 - 1})
	for i := range b {
		if j, ok := b[i].(bpf.JumpIf); ok {
			rest := uint8(len(b) - i - 1)
			if j.SkipTrue == skip {
				j.SkipTrue = rest
			}
			if j.SkipFalse == skip {
				j.SkipFalse = rest
			}
			b[i] = j
		}
	}
	return b
}

// plain returns an address as packets have it.
func plain(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
}
