package relay

import (
	"encoding/binary"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/ledger"
	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/relay/hold"
)

// noHolder holds nothing: what was held is given to an engine by Keep.Held.
type noHolder struct{}

func (noHolder) Hold([2]uint64, string, []int) error { return nil }
func (noHolder) Drop([2]uint64)                      {}
func (noHolder) Flush() error                        { return nil }

// deadLedger is what a process has left of a few flows of all kinds: a pair of Unix streams, a pair of TCP
// connections, an echo, one whose end was noted, and a datagram flow that is discarded.
type deadLedger struct {
	t    *testing.T
	l    *ledger.Ledger
	held []hold.Held
	mem  *os.File
	refs [5]uint32 // of the blocks that records have
}

var deadListener = fmt.Sprintf("unixgram:@penstock-test-damaged-%d", os.Getpid())

func newDeadLedger(t *testing.T) *deadLedger {
	l, err := ledger.Create(ledger.Config{Slots: 64, Arena: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	d := &deadLedger{t: t, l: l}
	fd, e := sys.Dup(l.FD())
	if e != 0 {
		t.Fatal(e)
	}
	d.mem = os.NewFile(uintptr(fd), "ledger")
	t.Cleanup(func() { d.mem.Close() })
	one := uint32(recordRecvOne|recordSendOne) * 3
	d.stream(0, "unix", recordHeld|one)
	d.stream(1, "tcp4", recordHeld|recordTCP|recordTCP<<1|one|recordNoBase*3)
	d.stream(2, "unix", recordHeld|recordEcho|one)
	d.stream(3, "unix", recordHeld|one)
	l.Record(3).SetState(recordFinal)
	l.Record(3).SetCause(uint8(CauseIdle))

	r := l.Begin(4)
	r.SetKind(ledger.KindDatagram)
	r.SetFlags(recordDiscard)
	var enc hold.Encoder
	enc.Uint(encodingVersion)
	enc.Uint(encodedUpstream)
	enc.Uint(0)
	encodeAddress(&enc, Addr{Network: Unixgram, Path: "@penstock-test-client"})
	enc.Uint(0)
	encodeAddress(&enc, Addr{Network: Discard})
	d.publish(4, r, deadListener, enc.Encoded())
	l.Turn().Begin(0, 1)
	return d
}

// stream publishes a stream flow, of which the process had sent nothing of 100 bytes.
func (d *deadLedger) stream(slot uint32, network string, flags uint32) {
	var fds []int
	for range 2 {
		a, _ := testnet.Pair(d.t, network)
		rc, err := a.(syscall.Conn).SyscallConn()
		if err == nil {
			err = rc.Control(func(fd uintptr) {
				if dup, e := sys.Dup(int(fd)); e == 0 {
					fds = append(fds, dup)
				}
			})
		}
		if err != nil {
			d.t.Fatal(err)
		}
		if flags&recordEcho != 0 {
			break
		}
	}
	d.held = append(d.held, hold.Held{Key: newHoldKey(holdFlow, 0, uint64(slot), uint64(2*slot+1)), FDs: fds})
	r := d.l.Begin(slot)
	r.SetKind(ledger.KindStream)
	r.SetFlags(flags)
	r.Half(up).SetIn(1100)
	r.Half(up).SetOut(1000)
	block := d.l.Arena().Get(100)
	ref, _ := d.l.Arena().Ref(block)
	r.Half(up).SetBlock(ref, 100)
	var enc hold.Encoder
	enc.Uint(encodingVersion)
	enc.Uint(encodedUpstream | encodedTimeouts)
	enc.Uint(7)
	encodeAddress(&enc, Addr{Network: Unix})
	enc.Uint(0)
	encodeAddress(&enc, Addr{Network: Unix, Path: "@up"})
	var all hold.Encoder
	for range new(Timeouts).all() {
		all.Uint(1 << 40)
	}
	enc.String(string(all.Encoded()))
	d.publish(slot, r, "unix:@penstock-test-gone", enc.Encoded())
}

func (d *deadLedger) publish(slot uint32, r ledger.Record, listener string, blob []byte) {
	name, ok := d.l.Intern(listener)
	r.SetListener(name)
	if !ok || !d.l.SetBlob(r, blob) {
		d.t.Fatal("no room")
	}
	d.refs[slot], _ = r.BlobBlock()
	d.l.Publish(slot, 2*slot+1)
}

// The places of parts in a ledger, as words of its header: see header in package ledger.
const (
	turnPlace    = 8 + 8*9
	recordsPlace = 8 + 8*17
	arenaPlace   = 8 + 8*19
)

// damage stores bytes that are v, one of them or eight: at 0 to 175 in the record of a slot, from there on in the block
// that has its bytes, and for slots beyond the last one in the note of the turn, or in the words of the header that
// change.
func (d *deadLedger) damage(slot, where, v byte, eight bool) {
	var b [8]byte
	place := func(at int64) int64 {
		d.mem.ReadAt(b[:], at)
		return int64(binary.LittleEndian.Uint64(b[:]))
	}
	at := int64(0)
	switch n := int64(where); {
	case slot&63 == 63:
		at = 2048 + n%24 // see topAt in package ledger
	case slot%6 == 5:
		at = place(turnPlace) + n
	case n < ledger.RecordSize:
		at = place(recordsPlace) + int64(slot%6)*ledger.RecordSize + n
	default:
		at = place(arenaPlace) + int64(d.refs[slot%6]&(1<<28-1))*64 + n - ledger.RecordSize
	}
	value := []byte{v, v, v, v, v, v, v, v}
	if !eight {
		value = value[:1]
	} else {
		at &^= 7
	}
	if _, err := d.mem.WriteAt(value, at); err != nil {
		d.t.Fatal(err)
	}
}

// restoreDamaged restores what is left of a ledger, of which bytes were replaced: each patch is four bytes, see damage.
func restoreDamaged(t *testing.T, patches []byte) {
	testnet.CheckLeaks(t)
	d := newDeadLedger(t)
	for ; len(patches) >= 4; patches = patches[4:] {
		d.damage(patches[0], patches[1], patches[2], patches[3]&1 != 0)
	}
	records := 0
	if fd, e := sys.Dup(d.l.FD()); e != 0 {
		t.Fatal(e)
	} else if l, err := ledger.Open(sys.Linux{}, fd); err == nil {
		for range l.All() {
			records++
		}
		l.Close()
	} else {
		sys.Linux{}.Close(fd)
		records = -1
	}
	fd, e := sys.Dup(d.l.FD())
	if e != 0 {
		t.Fatal(e)
	}
	d.l.Close()
	d.held = append(d.held, hold.Held{Key: newHoldKey(holdLedger, 0, 0, 1), Label: "ledger", FDs: []int{fd}})
	e2, err := New(Config{Loops: 1, Keep: &hold.Keep{Holder: noHolder{}, Held: d.held}})
	if err != nil {
		t.Fatal(err)
	}
	var done atomic.Int64
	hooks := Hooks{Done: func(*Record) { done.Add(1) }}
	to := Addr{Network: Discard}
	hooks.Upstream = func(*Flow, int) *Addr { return &to }
	at, err := ParseAddr(deadListener)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e2.Listen(at, ListenConfig{Hooks: hooks}); err != nil {
		t.Fatal(err)
	}
	r, err := e2.Restore(RestoreConfig{
		Listener: func(string) (ListenConfig, bool) { return ListenConfig{Hooks: hooks}, true },
		Pair:     func(string, *hold.Decoder) (PairConfig, error) { return PairConfig{}, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	if n := r.Flows + r.Ended + r.TotalLost(); records >= 0 && n != records {
		t.Errorf("%d records, and %+v", records, r)
	}
	if err := e2.Close(); err != nil {
		t.Error(err)
	}
	if n := int(done.Load()); n > r.Flows+r.Ended+r.TotalLost() {
		t.Errorf("%d records of flows came out of %+v", n, r)
	}
	if st := e2.Stats().Total(); st.Kept != 0 {
		t.Errorf("%d flows are kept", st.Kept)
	}
}

// FuzzRestore: whatever a dead process has left in its ledger, each of its flows goes on, has ended, or is lost, and
// nothing is left over.
func FuzzRestore(f *testing.F) {
	f.Add([]byte(nil))
	f.Add([]byte{3, 5, 200, 0})                                            // a cause that this version does not have
	f.Add([]byte{0, 5, 200, 0})                                            // of a flow that goes on
	f.Add([]byte{5, 9, 1, 0, 5, 12, 100, 0})                               // it died in a read
	f.Add([]byte{5, 9, 2, 0, 5, 12, 100, 0, 5, 16, 7, 1})                  // and while it sent what was read
	f.Add([]byte{0, 7, 2, 0, 1, 7, 2, 0})                                  // they did not relay yet
	f.Add([]byte{4, 176, 255, 1, 4, 40, 4, 1})                             // what a datagram flow has encoded, and its client
	f.Add([]byte{0, 84, 255, 0, 1, 80, 255, 1})                            // blocks
	f.Add([]byte{63, 4, 1, 0, 63, 8, 255, 1})                              // the number of records, the bytes of strings
	f.Add([]byte{2, 8, 255, 1, 3, 8, 255, 1, 3, 7, 1, 0})                  // flags
	f.Add([]byte{0, 7, 2, 0, 1, 7, 93, 122, 204, 15, 202, 207, 240, 2, 0}) // a pair that did not relay yet
	f.Add([]byte{0, 4, 2, 0})                                              // a pair of streams that says it is a datagram flow
	f.Fuzz(func(t *testing.T, patches []byte) {
		if len(patches) <= 120 {
			restoreDamaged(t, patches)
		}
	})
}

// Causes and errors that this version does not know, because the process before was of a later one, do not end
// this one.
func TestRestoreUnknownCause(t *testing.T) {
	for _, slot := range []byte{0, 1, 2, 3, 4} {
		for _, state := range []byte{recordRelaying, recordFinal, recordEarly} {
			t.Run(fmt.Sprintf("slot %d, state %d", slot, state), func(t *testing.T) {
				restoreDamaged(t, []byte{slot, 5, byte(causes), 0, slot, 7, state, 0})
			})
		}
	}
}
