package relay

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/ledger"
	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testkernel"
	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
	"github.com/penstock/penstock/relay/hold"
)

// edit changes the ledger of a process that was killed.
func (k *keptTable) edit(do func(l *ledger.Ledger)) {
	k.t.Helper()
	for _, x := range k.heldOf(holdLedger) {
		fd, e := sys.Dup(x.FDs[0])
		if e != 0 {
			k.t.Fatal(e)
		}
		l, err := ledger.Open(sys.Linux{}, fd)
		if err != nil {
			k.t.Fatal(err)
		}
		do(l)
		l.Close()
	}
}

// Flows that cannot go on are reset on both sides, and have one record, if their hooks know them.
func TestLostFlows(t *testing.T) {
	first := func(k *keptTable, do func(l *ledger.Ledger, slot uint32, r ledger.Record)) {
		k.edit(func(l *ledger.Ledger) {
			for slot, r := range l.All() {
				do(l, slot, r)
				return
			}
		})
	}
	for _, c := range []struct {
		name   string
		loss   hold.Loss
		record bool
		damage func(j *journey)
	}{
		{"inconsistent", hold.LossInconsistent, true, func(j *journey) {
			first(j.k, func(_ *ledger.Ledger, _ uint32, r ledger.Record) { r.Half(up).SetIn(r.Half(up).In() + 5) })
		}},
		{"repeated", hold.LossRepeated, true, func(j *journey) {
			name := func(l *ledger.Ledger, slot uint32, r ledger.Record) { l.Turn().Begin(slot, r.Generation()) }
			first(j.k, name)
			j.next(j.k.t)
			j.proc.kill()
			first(j.k, func(_ *ledger.Ledger, _ uint32, r ledger.Record) { r.SetCrashes(1) })
			first(j.k, name)
		}},
		{"descriptors", hold.LossDescriptors, true, func(j *journey) {
			for _, x := range j.k.heldOf(holdFlow) {
				j.k.message(keptMessage('d', x.Key, ""), nil)
			}
		}},
		{"resources", hold.LossResources, true, func(j *journey) {
			for _, x := range j.k.heldOf(holdFlow) {
				f, err := os.Open(os.Args[0])
				if err != nil {
					j.k.t.Fatal(err)
				}
				j.k.closeAll(x.FDs[1:])
				x.FDs[1], _ = sys.Dup(int(f.Fd())) // epoll(7) takes no regular file
				f.Close()
			}
		}},
		{"listener", hold.LossListener, false, func(j *journey) { j.o.Listen = nil }},
		{"hook", hold.LossHook, false, func(j *journey) {
			first(j.k, func(l *ledger.Ledger, _ uint32, r ledger.Record) {
				b, _ := l.Blob(r)
				l.SetBlob(r, b[:len(b)-1])
			})
		}},
		{"stale", hold.LossHook, false, func(j *journey) {
			first(j.k, func(_ *ledger.Ledger, _ uint32, r ledger.Record) { r.SetFlags(r.Flags() | recordStale) })
		}},
		{"damaged", hold.LossInconsistent, false, func(j *journey) {
			first(j.k, func(l *ledger.Ledger, _ uint32, r ledger.Record) { r.Half(up).SetBlock(0xf<<28, 7) })
		}},
		{"ledger", hold.LossLedger, false, func(j *journey) {
			for _, x := range j.k.heldOf(holdLedger) {
				fd, _ := sys.Dup(x.FDs[0])
				f := os.NewFile(uintptr(fd), "ledger")
				if _, err := f.WriteAt([]byte("another"), 0); err != nil {
					j.k.t.Error(err)
				}
				f.Close()
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := newKeptTable(t)
			s := newServer(t, "tcp4")
			o := keptOrder{Loops: 1, Listen: []string{keptPlace(t, "tcp4")}, Upstream: s.addr.String()}
			j := &journey{k: k, o: o, proc: k.start(o)}
			j.o.Listen = j.proc.urls()
			a := j.dial(t)
			b := s.accept(t)
			say(t, a, b, "up")
			say(t, b, a, "down")
			j.proc.ask("stats") // the turn is over
			j.proc.kill()
			c.damage(j)
			j.proc = k.start(j.o)
			r := j.proc.Restored
			if r.Flows != 0 || r.TotalLost() != 1 || r.Lost.Get(c.loss) != 1 {
				t.Errorf("%+v", r)
			}
			for _, end := range []interface {
				Read([]byte) (int, error)
				SetReadDeadline(time.Time) error
			}{a, b} {
				end.SetReadDeadline(time.Now().Add(patience))
				if n, err := end.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
					t.Errorf("read %d, %v, want a reset", n, err)
				}
			}
			k.settled(0)
			if n := j.proc.ask("arenas").Lent; n != 0 {
				t.Errorf("the arena has lent %d bytes", n)
			}
			j.proc.kill()
			j.collect()
			switch {
			case !c.record && len(j.records) > 0, c.record && len(j.records) != 1:
				t.Errorf("%+v", j.records)
			case c.record && (j.records[0].Cause != CauseCrashed || j.records[0].Up.Written != 2 || j.records[0].Down.Written != 4):
				t.Errorf("%+v", j.records[0])
			}
		})
	}
}

// What a flow had sent before it relayed is given back if the flow cannot go on.
func TestLostEarlyFlow(t *testing.T) {
	k := newKeptTable(t)
	o := keptOrder{Loops: 1, After: patience, Listen: []string{keptPlace(t, "tcp4")}, Upstream: "echo:", Sniff: 9}
	proc := k.start(o)
	c := testnet.Dial(t, toNet(proc.addrs[0]))
	io.WriteString(c, "begun")
	testwait.Until(t, "it is sniffed", func() bool { return proc.ask("arenas").Lent > 0 })
	proc.ask("handover")
	proc.kill()
	o.Listen = nil
	proc = k.start(o)
	if r := proc.Restored; r.Flows != 0 || r.TotalLost() != 1 || r.Lost.Get(hold.LossListener) != 1 {
		t.Errorf("%+v", r)
	}
	k.settled(0)
	if n := proc.ask("arenas").Lent; n != 0 {
		t.Errorf("the arena has lent %d bytes", n)
	}
	wantReset(t, c)
}

// A flow of which nobody knows what was in the hands of the process, because its client has reset the
// connection, ends for that cause, with what it had moved until then.
func TestResetInDoubt(t *testing.T) {
	s := newServer(t, "tcp4")
	j, _ := newJourney(t, "tcp4", "tcp4", testnet.Script{}, keptOrder{Upstream: s.addr.String()})
	a := j.dial(t)
	b := s.accept(t)
	say(t, a, b, "up")
	say(t, b, a, "down")
	j.proc.ask("turn")
	j.proc.kill()
	reset(t, a)
	j.k.edit(func(l *ledger.Ledger) {
		for slot, r := range l.All() {
			block := l.Arena().Get(100) // of what was to be delivered
			ref, _ := l.Arena().Ref(block)
			r.Half(down).SetIn(r.Half(down).In() + 100)
			r.Half(down).SetBlock(ref, 100)
			n := l.Turn()
			n.Begin(slot, r.Generation())
			n.SetCounts(r.Half(up).In(), r.Half(up).Out())
			n.Set(up, ledger.PhaseReading, 0)
		}
	})
	j.proc = j.k.start(j.o)
	wantReset(t, b)
	j.k.settled(0)
	if n := j.proc.ask("arenas").Lent; n != 0 {
		t.Errorf("the arena has lent %d bytes", n)
	}
	rec := <-j.proc.records
	if rec.Cause != CauseClientReset || rec.Up.Read != 2 || rec.Up.Written != 2 || rec.Down.Read != 104 || rec.Down.Written != 4 {
		t.Errorf("%+v", rec)
	}
}

// A reset of which the dead process has taken the error from the socket, where it looks like an end then, is not
// taken for one, whether the stream towards that side has ended or not.
func TestResetThatWasTaken(t *testing.T) {
	for _, ended := range []bool{false, true} {
		t.Run(fmt.Sprintf("ended %v", ended), func(t *testing.T) {
			s := newServer(t, "tcp4")
			j, _ := newJourney(t, "tcp4", "tcp4", testnet.Script{}, keptOrder{Upstream: s.addr.String()})
			a := j.dial(t)
			b := s.accept(t)
			say(t, a, b, "up")
			say(t, b, a, "down")
			if ended {
				closeWrite(t, b)
				expectEOF(t, a)
			}
			j.proc.ask("turn")
			j.proc.kill()
			j.k.edit(func(l *ledger.Ledger) {
				for slot, r := range l.All() {
					l.Turn().Begin(slot, r.Generation())
				}
			})
			reset(t, a)
			for _, x := range j.k.heldOf(holdFlow) {
				testwait.Until(t, "the reset has come", func() bool { return sys.HasError(sys.Linux{}, x.FDs[sideClient]) })
				sys.SockError(sys.Linux{}, x.FDs[sideClient])
			}
			j.proc = j.k.start(j.o)
			wantReset(t, b)
			j.k.settled(0)
			if rec := <-j.proc.records; rec.Cause != CauseClientReset {
				t.Errorf("%+v", rec)
			}
		})
	}
}

// The same of a Unix upstream that has left something unread, and has sent an urgent byte before.
func TestResetThatWasTakenBehindUrgent(t *testing.T) {
	s := newServer(t, "unix")
	j, _ := newJourney(t, "tcp4", "unix", testnet.Script{}, keptOrder{Upstream: s.addr.String()})
	a := j.dial(t)
	b := s.accept(t)
	say(t, a, b, "up")
	say(t, b, a, "down")
	if err := testkernel.Urgent(b, '!'); errors.Is(err, sys.EOPNOTSUPP) {
		t.Skip("the kernel has no CONFIG_AF_UNIX_OOB")
	}
	say(t, b, a, "more")
	io.WriteString(a, "unread")
	j.k.settled(1)
	side := j.k.heldOf(holdFlow)[0].FDs[sideUpstream]
	testwait.Until(t, "it is in the socket", func() bool { n, _ := sys.Linux{}.WriteQueued(side); return n > 0 })
	j.proc.ask("turn")
	j.proc.kill()
	j.k.edit(func(l *ledger.Ledger) {
		for slot, r := range l.All() {
			n := l.Turn()
			n.Begin(slot, r.Generation())
			n.SetCounts(r.Half(down).In(), r.Half(down).Out())
			n.Set(down, ledger.PhaseReading, 0)
		}
	})
	b.Close()
	testwait.Until(t, "the reset has come", func() bool { return sys.HasError(sys.Linux{}, side) })
	sys.SockError(sys.Linux{}, side)
	j.proc = j.k.start(j.o)
	wantReset(t, a)
	j.k.settled(0)
	if rec := <-j.proc.records; rec.Cause != CauseUpstreamReset {
		t.Errorf("%+v", rec)
	}
}
