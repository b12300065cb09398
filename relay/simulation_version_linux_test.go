package relay

import (
	"reflect"
	"slices"
	"testing"

	"github.com/penstock/penstock/internal/ledger"
	"github.com/penstock/penstock/internal/simkernel"
	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/relay/hold"
)

// otherCounters are loopCounters of another version: the same names in another order, and one that this version does not have.
type otherCounters struct {
	Datagrams                        datagramCounters
	Another                          int64
	LongestTurn, Busy                int64
	Events, Wakeups, Waits           int64
	AcceptPauses, AcceptErrors       int64
	Restored, KeepErrors, Kept       int64
	BytesDropped, BytesSpliced       int64
	BytesWritten, BytesRead          int64
	Ended                            [64]int64
	ConnectErrors, Connects, Adopted int64
	Accepted, Flows                  int64
}

// finds is called with what the next process finds.
func (s *simulation) finds(held []hold.Held) {
	s.countUnread(held)
	s.otherVersion(held)
}

// otherVersion has a process of another version been there before the one that begins, as after an upgrade that is taken back: each counter of the
// ledgers is where that version has it.
func (s *simulation) otherVersion(held []hold.Held) {
	if s.processes%3 != 1 || s.damaged {
		return
	}
	for _, x := range held {
		if kindOf(x.Key) != holdLedger {
			continue
		}
		l, err := ledger.Open(leavesOpen{s.process}, x.FDs[0])
		if err != nil {
			s.fail("another version opens a ledger: %v", err)
			continue
		}
		if _, err = ledger.StatsOf[otherCounters](l); err != nil {
			s.fail("another version counts: %v", err)
		}
		l.Close()
	}
}

// leavesOpen is a process that leaves its descriptors open, for another one.
type leavesOpen struct{ *simkernel.Process }

// Close implements [sys.Kernel].
func (leavesOpen) Close(int) sys.Errno { return 0 }

// TestSimulateOtherVersion checks that another version has all counters of this one, and no more than one beside them.
func TestSimulateOtherVersion(t *testing.T) {
	names := func(of reflect.Type) (all []string) {
		for _, c := range countersOf(of, "", nil) {
			all = append(all, c.name)
		}
		slices.Sort(all)
		return all
	}
	want, got := names(reflect.TypeFor[loopCounters]()), names(reflect.TypeFor[otherCounters]())
	if got = slices.DeleteFunc(got, func(name string) bool { return name == "Another" }); !slices.Equal(got, want) {
		t.Errorf("another version counts %v, rather than %v", got, want)
	}
}
