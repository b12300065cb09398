//go:build linux && (amd64 || arm64)

package sys

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// callData is struct seccomp_data.
type callData struct {
	nr, arch uint32
	ip       uint64
	args     [6]uint64
}

// interpret runs a filter as the kernel does, and returns its result. ok is false if the kernel would not have taken it.
func interpret(p []unix.SockFilter, d callData) (result uint32, steps int, ok bool) {
	var b [64]byte
	binary.LittleEndian.PutUint32(b[0:], d.nr)
	binary.LittleEndian.PutUint32(b[4:], d.arch)
	binary.LittleEndian.PutUint64(b[8:], d.ip)
	for i, a := range d.args {
		binary.LittleEndian.PutUint64(b[16+8*i:], a)
	}
	var acc uint32
	for pc := 0; pc < len(p); pc++ {
		steps++
		i := p[pc]
		jump := func(is bool) {
			if is {
				pc += int(i.Jt)
			} else {
				pc += int(i.Jf)
			}
		}
		switch i.Code {
		case unix.BPF_LD | unix.BPF_W | unix.BPF_ABS:
			if i.K%4 != 0 || i.K > 60 {
				return 0, steps, false
			}
			acc = binary.LittleEndian.Uint32(b[i.K:])
		case unix.BPF_ALU | unix.BPF_AND | unix.BPF_K:
			acc &= i.K
		case unix.BPF_JMP | unix.BPF_JA:
			pc += int(i.K)
		case unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K:
			jump(acc == i.K)
		case unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K:
			jump(acc >= i.K)
		case unix.BPF_RET | unix.BPF_K:
			return i.K, steps, true
		default:
			return 0, steps, false
		}
	}
	return 0, steps, false
}

// decide is what a filter is to return: the oracle, which looks at the lists themselves.
func (f *filter) decide(d callData) uint32 {
	switch {
	case d.arch != f.arch:
		return f.foreign
	case f.tooHigh != 0 && d.nr >= f.tooHigh:
		return f.deny
	}
	for _, c := range f.calls {
		if c.nr != d.nr {
			continue
		}
		if len(c.rule) == 0 {
			return unix.SECCOMP_RET_ALLOW
		}
		for _, all := range c.rule {
			if !slices.ContainsFunc(all, func(c condition) bool { return !c.holds(d.args[c.arg]) }) {
				return unix.SECCOMP_RET_ALLOW
			}
		}
		return f.deny
	}
	if slices.Contains(f.absent, d.nr) || d.nr >= f.newer {
		return f.missing
	}
	return f.deny
}

func (c condition) holds(arg uint64) bool {
	if c.wide {
		return slices.ContainsFunc(c.values, func(v uint32) bool { return uint64(v) == arg })
	}
	return slices.Contains(c.values, uint32(arg)&c.mask)
}

// source makes choices from bytes.
type source []byte

func (s *source) next(n int) int {
	if len(*s) == 0 {
		return 0
	}
	x := int((*s)[0])
	*s = (*s)[1:]
	return x % n
}

// filter makes a filter with few numbers, so that calls meet its lists.
func (s *source) filter() *filter {
	f := &filter{arch: auditArch, newer: 400, deny: 1, missing: 2, foreign: 3}
	if s.next(2) == 0 {
		f.tooHigh = 500
	}
	used := make(map[uint32]bool)
	fresh := func() uint32 {
		nr := uint32(s.next(256) + s.next(2)*200)
		for used[nr] {
			nr++
		}
		used[nr] = true
		return nr
	}
	for range s.next(120) {
		c := listed{nr: fresh()}
		for range s.next(4) {
			var all []condition
			for range s.next(4) {
				cond := condition{arg: s.next(6), mask: ^uint32(0), wide: s.next(4) == 0}
				if !cond.wide && s.next(2) == 0 {
					cond.mask = uint32(s.next(256))
				}
				for range 1 + s.next(4) {
					cond.values = append(cond.values, uint32(s.next(8))&cond.mask)
				}
				all = append(all, cond)
			}
			c.rule = append(c.rule, all)
		}
		f.calls = append(f.calls, c)
		if s.next(8) == 0 {
			f.hot = append(f.hot, c.nr)
		}
	}
	for range s.next(4) {
		f.absent = append(f.absent, fresh())
	}
	return f
}

func (s *source) call(f *filter) callData {
	d := callData{nr: uint32(s.next(256) + s.next(2)*300), arch: f.arch}
	if s.next(2) == 0 && len(f.calls) > 0 {
		d.nr = f.calls[s.next(len(f.calls))].nr
	}
	switch s.next(16) {
	case 0:
		d.nr |= 0x40000000
	case 1:
		d.arch ^= 1
	case 2:
		d.nr = ^uint32(0)
	}
	for i := range d.args {
		d.args[i] = uint64(s.next(8))
		if s.next(8) == 0 {
			d.args[i] |= 1 << (32 + s.next(32))
		}
	}
	return d
}

// check compares the program with the oracle.
func (f *filter) check(tb testing.TB, calls []callData) {
	tb.Helper()
	p, err := assemble(f)
	if err != nil {
		tb.Fatalf("%v: %+v", err, f)
	}
	for _, d := range calls {
		if got, _, ok := interpret(p, d); !ok || got != f.decide(d) {
			tb.Fatalf("%+v: %#x (%v), want %#x; %+v", d, got, ok, f.decide(d), f)
		}
	}
}

// FuzzFilter compares the programs that are assembled with what they are assembled from.
func FuzzFilter(f *testing.F) {
	for seed := range uint64(3) {
		b := make([]byte, 3000)
		rng := rand.NewPCG(seed, 0)
		for i := range b {
			b[i] = byte(rng.Uint64())
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s := source(b)
		x := s.filter()
		var calls []callData
		for range 64 {
			calls = append(calls, s.call(x))
		}
		x.check(t, calls)
	})
}

func TestRandomFilters(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 300 {
		b := make(source, 4000)
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		x := b.filter()
		var calls []callData
		for range 64 {
			calls = append(calls, b.call(x))
		}
		x.check(t, calls)
	}
}

// The filter of processes: each number with arguments around those of its rule, against the lists. Calls that come often
// need few instructions.
func TestCallFilter(t *testing.T) {
	for _, c := range []CallFilter{{}, {Log: true}, {Modes: true, Multipath: true, Unix: true}, {NoFastOpen: true}} {
		f := callFilter(c, 4711)
		p, err := assemble(f)
		if err != nil {
			t.Fatal(err)
		}
		interesting := []uint64{0, 1, 2, 3, 4, 5, 6, 10, 16, 17, 262, 4711, 1 << 32, 4711 | 1<<40, ^uint64(0), goThread, goThread | unix.CLONE_SETTLS, 17,
			unix.SOCK_STREAM | unix.SOCK_CLOEXEC, unix.MSG_FASTOPEN, unix.MSG_NOSIGNAL, unix.TIOCSTI, unix.SIOCATMARK, unix.PR_SET_VMA, unix.PR_SET_DUMPABLE}
		longest, allowed := 0, 0
		for nr := range uint32(600) {
			for _, a := range interesting {
				for i := range 6 {
					d := callData{nr: nr, arch: f.arch}
					d.args[i] = a
					got, steps, ok := interpret(p, d)
					if !ok || got != f.decide(d) {
						t.Fatalf("%+v: %#x, want %#x", d, got, f.decide(d))
					}
					if got == unix.SECCOMP_RET_ALLOW {
						allowed++
					}
					longest = max(longest, steps)
				}
			}
		}
		_, splice, _ := interpret(p, callData{nr: unix.SYS_SPLICE, arch: f.arch})
		_, socket, _ := interpret(p, callData{nr: unix.SYS_SOCKET, arch: f.arch, args: [6]uint64{unix.AF_INET, unix.SOCK_STREAM}})
		t.Logf("%+v: %d instructions; splice %d, socket %d, at most %d steps", c, len(p), splice, socket, longest)
		if splice > 10 || longest > 60 || allowed == 0 {
			t.Errorf("%+v: splice takes %d instructions, the longest path %d", c, splice, longest)
		}
	}
	if _, err := assemble(&filter{calls: []listed{{nr: 1}, {nr: 1}}}); err == nil {
		t.Error("a call that is listed twice")
	}
	if _, err := assemble(&filter{calls: []listed{{nr: 1}}, absent: []uint32{1}}); err == nil {
		t.Error("a call that is listed and absent")
	}
	if _, err := assemble(&filter{hot: []uint32{1}}); err == nil {
		t.Error("a call that is compared first and not listed")
	}
}
