package ledger

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/signal"
	"runtime"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testkernel"
	"github.com/penstock/penstock/internal/testnet"
)

// The child of TestEachInstruction must be in its first thread.
func init() {
	if os.Getenv(childEnv) == "steps" {
		runtime.LockOSThread()
	}
	children["steps"] = stepsChild
}

const (
	childControl  = childLedger + 1 // a page: the number of changes that are complete, and then the schedule
	childDataAt   = 16
	childMost     = page - childDataAt
	stepsSchedule = "penstock-steps"
)

// stepsChild does what the schedule in the control page says, and stops in front of each change.
func stepsChild() error {
	control, e := sys.Map(childControl, page)
	if e != 0 {
		return e
	}
	s := &schedule{control[childDataAt : childDataAt+sys.Load32(control[8:])]}
	s.next()
	m := newStates(childLedger, s, func(format string, args ...any) { panic(fmt.Sprintf(format, args...)) })
	changes := uint64(0)
	m.around = func(real func()) {
		runtime.Breakpoint()
		real()
		changes++
		sys.Store64(control, changes)
	}
	m.unarmed = true
	m.run()
	killed := make(chan os.Signal, 1)
	signal.Notify(killed, os.Interrupt)
	<-killed // which does not come: it is killed
	return nil
}

// stepper is the other side: a machine that does the same to a ledger of its own, and so knows what that of the
// child may look like between any two instructions of a change.
type stepper struct {
	t            *testing.T
	child        *testkernel.Stepper
	fd           int
	mem, control []byte
	last         [6][]byte // see changed
	views        []view
	until        time.Time // when the child is not stopped any more; zero: never
	instructions int
	stores       int
}

// changed reports whether a part of the ledger has changed whose stores decide what the next process sees. The
// others are only looked at when one of these has changed: nothing refers to them before.
func (s *stepper) changed(h *header) (yes bool) {
	for i, p := range []part{{0, page}, h.turn, h.strings, h.records, {h.stats.offset + statsNames, page}, {h.stats.offset + statsHalf + statsNames, page}} {
		if now := p.of(s.mem); !bytes.Equal(now, s.last[i]) {
			s.last[i] = append(s.last[i][:0], now...)
			yes = true
		}
	}
	return yes
}

// around runs a change in the child, instruction by instruction, and then in the own ledger.
func (s *stepper) around(m *machine, real func()) {
	t, h := s.t, &m.l.header
	if err := s.child.Continue(); err != nil {
		t.Fatal(err)
	}
	s.views = s.views[:0]
	before := sys.Load64(s.control)
	s.changed(h)
	for sys.Load64(s.control) == before && (s.until.IsZero() || time.Now().Before(s.until)) {
		if err := s.child.Step(); err != nil {
			t.Fatal(err)
		}
		s.instructions++
		if !s.changed(h) {
			continue
		}
		s.stores++
		v, err := look(s.fd, m.names)
		if err != nil {
			t.Fatalf("after %d instructions: %v", s.instructions, err)
		}
		s.views = append(s.views, v)
	}
	real()
	at := 0
	for i := range s.views {
		v := &s.views[i]
		for at < len(m.next) && *v != m.next[at] {
			at++
		}
		if at == len(m.next) {
			t.Fatalf("store %d of %d of a change, neither before%s\nnor after%s", i+1, len(s.views), differ(v, &m.next[0]), differ(v, &m.next[len(m.next)-1]))
		}
	}
}

// TestEachInstruction: real machine code changes a ledger, and between any two of its instructions the process
// may die: what the next process would find is what was there before, or after.
func TestEachInstruction(t *testing.T) {
	if testnet.RaceEnabled {
		t.Skip("the instructions of the race detector are not what runs")
	}
	// Each kind of change once: a stream with blocks and bytes of its own, datagrams, their fields, the three
	// kinds of turns to their end, strings, counters, the next process with others.
	all := []byte{0, 0,
		21, 0, 21, 130, 20, 131,
		0, 0, 0, 0, 2, 5, 3, 0, 1, 1, 3, 9,
		8, 0, 3, 8, 0, 5, 8, 0, 1, 9, 0, 0,
		11, 0, 5, 12, 0, 7, 11, 0, 0,
		13, 0, 0, 13, 0, 1, 13, 0, 3, 13, 0, 5, 13, 1, 0, 13, 1, 4,
		16, 0, 0x0e, 0, 5, 16, 0, 0x1f, 16, 0, 0x2f, 16, 0, 0x3f, 16, 0, 0x04, 3,
		22, 0, 22, 3, 23, 24,
		25, 0, 1, 22, 1, 25, 0, 0,
		6, 0, 1, 6, 0, 0}
	s := steps(t, all, time.Time{})
	t.Logf("%d instructions, %d of them seen to change something", s.instructions, s.stores)
	if s.stores < 100 {
		t.Errorf("only %d stores were seen", s.stores)
	}
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	until := time.Now().Add(300 * time.Millisecond)
	for i := 0; time.Now().Before(until); i++ {
		data := make([]byte, 100)
		for j := range data {
			data[j] = byte(r.Uint32())
		}
		if !t.Run(fmt.Sprintf("seed=%d/%d", seed, i), func(t *testing.T) { steps(t, data, until) }) {
			t.Fatalf("schedule %#v", data)
		}
	}
}

// steps runs a schedule in a child and here. It is not interrupted: every process lives until the end. From until on,
// only what is there between two changes is compared.
func steps(t *testing.T, data []byte, until time.Time) *stepper {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	h := statesLayout(data[0]&1 != 0)
	file := func(name string, size uint64, fill func(mem []byte)) *os.File {
		f := os.NewFile(uintptr(sealed(t, size, fill)), name)
		t.Cleanup(func() { f.Close() })
		return f
	}
	ledgerFile := file("ledger", h.fileBytes, func(mem []byte) { h.write(mem) })
	controlFile := file(stepsSchedule, page, func(mem []byte) {
		sys.Store32(mem[8:], uint32(copy(mem[childDataAt:], data)))
	})
	s := &stepper{t: t, fd: int(ledgerFile.Fd()), until: until}
	var e1, e2 sys.Errno
	s.mem, e1 = sys.Map(s.fd, int64(h.fileBytes))
	s.control, e2 = sys.Map(int(controlFile.Fd()), page)
	if e1 != 0 || e2 != 0 {
		t.Fatal(e1, e2)
	}
	defer sys.Unmap(s.mem)
	defer sys.Unmap(s.control)
	var err error
	env := append(os.Environ(), childEnv+"=steps", "GOGC=off", "GODEBUG=asyncpreemptoff=1")
	if s.child, err = testkernel.StartStepper(os.Args[:1], env, os.Stdin, os.Stdout, os.Stderr, ledgerFile, controlFile); errors.Is(err, fs.ErrPermission) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	defer s.child.Kill()

	own := sealed(t, h.fileBytes, func(mem []byte) { h.write(mem) })
	defer sys.Linux{}.Close(own)
	left := &schedule{data}
	left.next()
	m := newStates(own, left, func(format string, args ...any) {
		t.Helper()
		t.Fatalf("%s\n%d decisions left", fmt.Sprintf(format, args...), len(left.left))
	})
	m.unarmed = true
	m.around = func(real func()) { s.around(m, real) }
	m.run()
	return s
}
