package sys

import (
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// A seccomp filter is a program for the classic BPF machine, which sees struct seccomp_data: the number of the call at
// offset 0, the architecture at 4, and six arguments of 64 bits from 16 on. seccomp(2).
const (
	offNr   = 0
	offArch = 4
	offArgs = 16
)

// condition is true if an argument, after the mask, is one of the values. Without wide only the lower 32 bits count:
// the kernel looks at no more of arguments that are an int, or flags. See [rule].
type condition struct {
	arg    int
	mask   uint32
	values []uint32
	wide   bool // both halves must be the value; no mask, and the upper half of a value is 0
}

// rule says when a call is allowed: if all conditions of one of its alternatives are true. An empty rule allows the
// call whatever its arguments are; the kernel remembers that, and does not run the filter for it
// again (kernel/seccomp.c, seccomp_cache_check_allow, Linux 5.11).
type rule [][]condition

// argIs returns a condition on the lower half of an argument.
func argIs(arg int, values ...uint32) condition {
	return condition{arg: arg, mask: ^uint32(0), values: values}
}

// bits returns a condition on some bits of the lower half of an argument.
func bits32(arg int, mask uint32, values ...uint32) condition {
	return condition{arg: arg, mask: mask, values: values}
}

// null returns the condition that an argument of 64 bits is 0.
func null(arg int) condition { return condition{arg: arg, values: []uint32{0}, wide: true} }

// listed is a call with its rule.
type listed struct {
	nr   uint32
	rule rule
}

// filter is what a program is assembled from.
type filter struct {
	arch    uint32
	tooHigh uint32 // numbers from here on belong to another ABI; 0: there is none
	newer   uint32 // numbers from here on are unknown to this package: the answer is ENOSYS
	hot     []uint32
	calls   []listed // sorted by number
	absent  []uint32 // answered with ENOSYS: the caller has another way
	deny    uint32   // what is returned for everything else
	missing uint32   // what is returned for newer and absent
	foreign uint32   // what is returned for another architecture
}

// assembler makes a program. Jumps are relative, and forward only.
type assembler struct {
	insns  []unix.SockFilter
	tooFar bool // a rule is longer than a jump
}

func (a *assembler) add(code uint16, jt, jf uint8, k uint32) (at int) {
	a.insns = append(a.insns, unix.SockFilter{Code: code, Jt: jt, Jf: jf, K: k})
	return len(a.insns) - 1
}

func (a *assembler) load(off uint32) { a.add(unix.BPF_LD|unix.BPF_W|unix.BPF_ABS, 0, 0, off) }
func (a *assembler) ret(k uint32)    { a.add(unix.BPF_RET|unix.BPF_K, 0, 0, k) }

// when runs body only if the accumulator compares true with k. It jumps behind body otherwise.
func (a *assembler) when(cmp uint16, k uint32, body func()) {
	a.add(unix.BPF_JMP|cmp|unix.BPF_K, 1, 0, k)
	ja := a.add(unix.BPF_JMP|unix.BPF_JA, 0, 0, 0)
	body()
	a.insns[ja].K = uint32(len(a.insns) - ja - 1)
	if n := a.insns[ja].K; n <= 255 { // one instruction is enough
		a.insns[ja-1].Jt, a.insns[ja-1].Jf = 0, uint8(n)
		a.insns = slices.Delete(a.insns, ja, ja+1)
	}
}

// assemble returns the program of f.
func assemble(f *filter) ([]unix.SockFilter, error) {
	a := &assembler{}
	a.load(offArch)
	a.add(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, 1, 0, f.arch)
	a.ret(f.foreign)
	a.load(offNr)
	if f.tooHigh != 0 {
		a.when(unix.BPF_JGE, f.tooHigh, func() { a.ret(f.deny) })
	}
	rules := make(map[uint32]rule, len(f.calls))
	for _, c := range f.calls {
		if _, twice := rules[c.nr]; twice {
			return nil, fmt.Errorf("call %d is listed twice", c.nr)
		}
		rules[c.nr] = c.rule
	}
	for _, nr := range f.hot {
		r, ok := rules[nr]
		if !ok {
			return nil, fmt.Errorf("call %d is not listed", nr)
		}
		a.when(unix.BPF_JEQ, nr, func() { a.rule(r, f) })
	}
	var rest []listed
	for _, c := range f.calls {
		if !slices.Contains(f.hot, c.nr) {
			rest = append(rest, c)
		}
	}
	for _, nr := range f.absent {
		if _, both := rules[nr]; both {
			return nil, fmt.Errorf("call %d is listed, and absent", nr)
		}
		rest = append(rest, listed{nr, nil})
	}
	slices.SortFunc(rest, func(a, b listed) int { return int(a.nr) - int(b.nr) })
	a.search(rest, f)
	if len(a.insns) > unix.BPF_MAXINSNS || a.tooFar {
		return nil, fmt.Errorf("%d instructions", len(a.insns))
	}
	return a.insns, nil
}

// search finds the number among calls, by halves.
func (a *assembler) search(calls []listed, f *filter) {
	if len(calls) > 4 {
		half := len(calls) / 2
		a.when(unix.BPF_JGE, calls[half].nr, func() { a.search(calls[half:], f) })
		a.search(calls[:half], f)
		return
	}
	for _, c := range calls {
		a.when(unix.BPF_JEQ, c.nr, func() {
			if slices.Contains(f.absent, c.nr) {
				a.ret(f.missing)
				return
			}
			a.rule(c.rule, f)
		})
	}
	a.when(unix.BPF_JGE, f.newer, func() { a.ret(f.missing) })
	a.ret(f.deny)
}

// rule returns from the program.
func (a *assembler) rule(r rule, f *filter) {
	if len(r) == 0 {
		a.ret(unix.SECCOMP_RET_ALLOW)
		return
	}
	for _, conditions := range r {
		a.allowIfAll(conditions)
	}
	a.ret(f.deny)
}

// allowIfAll allows the call if all conditions are true, and goes on behind otherwise.
func (a *assembler) allowIfAll(conditions []condition) {
	if len(conditions) == 0 {
		a.ret(unix.SECCOMP_RET_ALLOW)
		return
	}
	c := conditions[0]
	if c.wide {
		a.load(offArgs + 8*uint32(c.arg) + 4)
		a.when(unix.BPF_JEQ, 0, func() { a.low(c, conditions[1:]) })
		return
	}
	a.low(c, conditions[1:])
}

func (a *assembler) low(c condition, rest []condition) {
	a.load(offArgs + 8*uint32(c.arg))
	if !c.wide && c.mask != ^uint32(0) {
		a.add(unix.BPF_ALU|unix.BPF_AND|unix.BPF_K, 0, 0, c.mask)
	}
	// One test for each value; the last one jumps behind what follows if it is none of them.
	for i, v := range c.values[:len(c.values)-1] {
		a.add(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, uint8(len(c.values)-1-i), 0, v)
	}
	a.last(c.values[len(c.values)-1], rest)
}

// last is when, but is jumped behind by the tests of other values: it always has one instruction.
func (a *assembler) last(v uint32, rest []condition) {
	at := a.add(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, 0, 0, v)
	a.allowIfAll(rest)
	if n := len(a.insns) - at - 1; n <= 255 {
		a.insns[at].Jf = uint8(n)
	} else {
		a.tooFar = true
	}
}
