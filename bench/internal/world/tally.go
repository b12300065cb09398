//go:build linux

package world

import (
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/bench/internal/stat"
)

// counter is one line of the balance.
type counter int

const (
	FlowsMade counter = iota
	flowsWhole
	BytesMoved
	pings
	newClients
	newDatagramClients
	datagramsAnswered
	datagramsLost
	datagramsLate
	resets
	unsettled
	unsettledDatagram
	idleDatagram
	FlowsKept
	MemberChanges
	flowsOutlived
	datagramsOutlived
	upgradesDone
	upgradesRefused
	// From here on every one must be 0.
	bytesMissing
	bytesWrong
	bytesDuplicate
	earlyEOF
	FlowsLost
	clientsRefused
	datagramFlowsLost
	datagramsWrong
	datagramsDuplicate
	headersWrong
	decreases
	unbalanced
	recordsWrong
	wrongMember
	UnusedMembers
	ChangesLost
	Leaks
	OtherFaults
	counters
)

var counterNames = [counters]string{
	FlowsMade:          "stream flows made",
	flowsWhole:         "stream flows that ended well",
	BytesMoved:         "bytes that arrived",
	pings:              "round trips",
	newClients:         "new stream clients that were served",
	newDatagramClients: "new datagram clients that were served",
	datagramsAnswered:  "datagrams that were answered",
	datagramsLost:      "datagrams that were not answered",
	datagramsLate:      "late answers that came to the next client, or flow of the relay, with the same port",
	resets:             "resets that arrived as resets",
	unsettled:          "stream flows not settled at a kill, and ended by it",
	unsettledDatagram:  "datagram flows not settled at a kill, and replaced",
	idleDatagram:       "datagram flows replaced after a time in which nothing of them came, as they had to be",
	FlowsKept:          "stream flows that outlived a kill",
	MemberChanges:      "changes of members in a registry",
	flowsOutlived:      "stream flows that went on after their member was removed, drained or moved",
	datagramsOutlived:  "datagram flows that did",
	upgradesDone:       "upgrades",
	upgradesRefused:    "upgrades to a binary that does not work, undone or refused",
	bytesMissing:       "bytes lost",
	bytesWrong:         "bytes wrong",
	bytesDuplicate:     "bytes that came twice",
	earlyEOF:           "streams that ended too early without an error",
	FlowsLost:          "settled stream flows lost",
	clientsRefused:     "clients refused",
	datagramFlowsLost:  "settled datagram flows lost",
	datagramsWrong:     "datagrams wrong, or somebody else's",
	datagramsDuplicate: "datagrams that came twice",
	headersWrong:       "PROXY headers wrong",
	decreases:          "counters of the metrics that decreased",
	unbalanced:         "listeners whose begun flows are not those ended and open",
	recordsWrong:       "records wrong, or of one flow twice",
	wrongMember:        "new flows to a member that the relay had left",
	UnusedMembers:      "members that got no flow",
	ChangesLost:        "changes that the relay never knew",
	Leaks:              "kinds of things left over when all flows have ended, or memory that grows",
	OtherFaults:        "other faults",
}

// A lockedWriter is written to by several goroutines.
type lockedWriter struct {
	mu sync.Mutex
	to io.Writer
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.to.Write(p)
}

// maxFaults is how many faults are shown in full, and maxAlike how many that are told alike are, whatever was shown before.
const maxFaults, maxAlike = 40, 5

// tally has what a run counts, and its faults.
type tally struct {
	counts [counters]atomic.Int64
	Out    io.Writer

	mu     sync.Mutex
	faults int
	alike  map[string]int  // faults by their format
	pauses []time.Duration // of a client at a kill
	first  []time.Duration // from a kill until the first client's next answer
}

func (t *tally) Count(c counter, n int64) { t.counts[c].Add(n) }

func (t *tally) Get(c counter) int64 { return t.counts[c].Load() }

// Fault counts a fault, and shows it.
func (t *tally) Fault(c counter, format string, args ...any) {
	t.Count(c, 1)
	t.show(format, args...)
}

// show shows a fault, which the caller has counted.
func (t *tally) show(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.alike == nil {
		t.alike = make(map[string]int)
	}
	t.faults++
	if t.alike[format]++; t.faults <= maxFaults || t.alike[format] <= maxAlike {
		fmt.Fprintf(t.Out, "%s FAULT: %s\n", time.Now().Format("15:04:05.000"), fmt.Sprintf(format, args...))
	}
}

func (t *tally) pause(d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pauses = append(t.pauses, d)
}

func (t *tally) firstPause(d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.first = append(t.first, d)
}

// Good reports whether there was no fault.
func (t *tally) Good() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for c := bytesMissing; c < counters; c++ {
		if t.Get(c) != 0 {
			return false
		}
	}
	return t.faults == 0
}

// Print writes the balance.
func (t *tally) Print() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for c := range counters {
		if c == bytesMissing {
			fmt.Fprintln(t.Out, "\nmust be 0:")
		}
		fmt.Fprintf(t.Out, "%15d  %s\n", t.Get(c), counterNames[c])
	}
	fmt.Fprintln(t.Out)
	PrintWaits(t.Out, "pause of a client, from the kill to its next answer", t.pauses)
	PrintWaits(t.Out, "pause of the relay, from the kill to the first answer", t.first)
}

// PrintWaits prints the percentiles of times, if there are any.
func PrintWaits(out io.Writer, what string, all []time.Duration) {
	if p50, p99, longest := stat.Waits(all); len(all) > 0 {
		fmt.Fprintf(out, "%s: p50 %v, p99 %v, longest %v (of %d)\n", what, p50.Round(ms), p99.Round(ms), longest.Round(ms), len(all))
	}
}
