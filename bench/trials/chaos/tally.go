//go:build linux

package main

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
	flowsMade counter = iota
	flowsWhole
	bytesMoved
	pings
	newClients
	newDatagramClients
	datagramsAnswered
	datagramsLost
	datagramsLate
	datagramsStale
	resets
	unsettled
	unsettledDatagram
	idleDatagram
	flowsKept
	memberChanges
	flowsOutlived
	datagramsOutlived
	upgradesDone
	upgradesRefused
	// From here on every one must be 0.
	bytesMissing
	bytesWrong
	bytesDuplicate
	earlyEOF
	flowsLost
	clientsRefused
	datagramFlowsLost
	datagramsWrong
	datagramsDuplicate
	headersWrong
	decreases
	unbalanced
	recordsWrong
	wrongMember
	unusedMembers
	changesLost
	leaks
	otherFaults
	counters
)

var counterNames = [counters]string{
	flowsMade:          "stream flows made",
	flowsWhole:         "stream flows that ended well",
	bytesMoved:         "bytes that arrived",
	pings:              "round trips",
	newClients:         "new stream clients that were served",
	newDatagramClients: "new datagram clients that were served",
	datagramsAnswered:  "datagrams that were answered",
	datagramsLost:      "datagrams that were not answered",
	datagramsStale:     "datagrams that came to an upstream too late to be answered",
	datagramsLate:      "late answers that came to the next client with the same port",
	resets:             "resets that arrived as resets",
	unsettled:          "stream flows not settled at a kill, and ended by it",
	unsettledDatagram:  "datagram flows not settled at a kill, and replaced",
	idleDatagram:       "datagram flows replaced after a time in which nothing of them came, as they had to be",
	flowsKept:          "stream flows that outlived a kill",
	memberChanges:      "changes of members in a registry",
	flowsOutlived:      "stream flows that went on after their member was removed, drained or moved",
	datagramsOutlived:  "datagram flows that did",
	upgradesDone:       "upgrades",
	upgradesRefused:    "upgrades to a binary that does not work, undone or refused",
	bytesMissing:       "bytes lost",
	bytesWrong:         "bytes wrong",
	bytesDuplicate:     "bytes that came twice",
	earlyEOF:           "streams that ended too early without an error",
	flowsLost:          "settled stream flows lost",
	clientsRefused:     "clients refused",
	datagramFlowsLost:  "settled datagram flows lost",
	datagramsWrong:     "datagrams wrong, or somebody else's",
	datagramsDuplicate: "datagrams that came twice",
	headersWrong:       "PROXY headers wrong",
	decreases:          "counters of the metrics that decreased",
	unbalanced:         "listeners whose begun flows are not those ended and open",
	recordsWrong:       "records wrong, or of one flow twice",
	wrongMember:        "new flows to a member that the relay had left",
	unusedMembers:      "members that got no flow",
	changesLost:        "changes that the relay never knew",
	leaks:              "kinds of things left over when all flows have ended, or memory that grows",
	otherFaults:        "other faults",
}

// maxFaults is how many faults are shown in full.
const maxFaults = 40

// tally has what a run counts, and its faults.
type tally struct {
	counts [counters]atomic.Int64
	out    io.Writer

	mu     sync.Mutex
	faults int
	pauses []time.Duration // of a client at a kill
	first  []time.Duration // from a kill until the first client's next answer
}

func (t *tally) count(c counter, n int64) { t.counts[c].Add(n) }

func (t *tally) get(c counter) int64 { return t.counts[c].Load() }

// fault shows a fault, which the caller has counted.
func (t *tally) fault(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.faults++; t.faults <= maxFaults {
		fmt.Fprintf(t.out, "%s FAULT: %s\n", time.Now().Format("15:04:05.000"), fmt.Sprintf(format, args...))
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

// good reports whether there was no fault.
func (t *tally) good() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for c := bytesMissing; c < counters; c++ {
		if t.get(c) != 0 {
			return false
		}
	}
	return t.faults == 0
}

// print writes the balance.
func (t *tally) print() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for c := range counters {
		if c == bytesMissing {
			fmt.Fprintln(t.out, "\nmust be 0:")
		}
		fmt.Fprintf(t.out, "%15d  %s\n", t.get(c), counterNames[c])
	}
	fmt.Fprintln(t.out)
	printWaits(t.out, "pause of a client, from the kill to its next answer", t.pauses)
	printWaits(t.out, "pause of the relay, from the kill to the first answer", t.first)
}

// printWaits prints the percentiles of times, if there are any.
func printWaits(out io.Writer, what string, all []time.Duration) {
	if p50, p99, longest := stat.Waits(all); len(all) > 0 {
		fmt.Fprintf(out, "%s: p50 %v, p99 %v, longest %v (of %d)\n", what, p50.Round(ms), p99.Round(ms), longest.Round(ms), len(all))
	}
}
