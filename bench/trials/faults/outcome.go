//go:build linux

package main

import (
	"encoding/json"
	"time"

	"github.com/penstock/penstock/bench/internal/stat"
	"github.com/penstock/penstock/bench/internal/world"
)

// ms is a time in milliseconds in JSON.
type millis float64

func inMillis(d time.Duration) millis { return millis(stat.Millis(d)) }
func (m millis) D() time.Duration     { return time.Duration(float64(m) * float64(time.Millisecond)) }
func (m millis) round() time.Duration { return roundTime(m.D()) }
func roundTime(d time.Duration) time.Duration {
	switch {
	case d >= time.Second:
		return d.Round(100 * time.Millisecond)
	case d >= 10*time.Millisecond:
		return d.Round(time.Millisecond)
	}
	return d.Round(100 * time.Microsecond)
}

// An outcome is what one fault did to one relay, as measured.
type outcome struct {
	Kind   string   `json:"kind"`
	Relay  string   `json:"relay"`
	Absent string   `json:"absent,omitempty"` // why the relay has nothing that the fault could be done to
	Error  string   `json:"error,omitempty"`  // why there is no measurement
	Held   bool     `json:"held"`
	Bad    []string `json:"bad,omitempty"` // what was not as expected

	Old  old        `json:"old"`
	New  newByPhase `json:"new"`
	Dgm  newByPhase `json:"new-datagrams"`
	Back millis     `json:"back"` // from the end of the fault to the first new client that began then and was served; -1: none

	Ends         int                `json:"ends,omitempty"` // how often the relay's first process, or one that carries traffic, ended
	End          string             `json:"end,omitempty"`  // how it ended first
	MemoryBefore int64              `json:"memory-before"`  // KB, resident
	MemoryPeak   int64              `json:"memory-peak"`
	FilesBefore  int                `json:"files-before"`
	FilesPeak    int                `json:"files-peak"`
	FilesAfter   int                `json:"files-after"`
	Processes    int                `json:"processes"`          // most at one time
	CPU          float64            `json:"cpu"`                // seconds during the fault
	Lasted       float64            `json:"lasted"`             // seconds
	Counters     map[string]float64 `json:"counters,omitempty"` // of the relay, that grew: by name
	Notes        map[string]float64 `json:"notes,omitempty"`    // of the fault
	Seconds      float64            `json:"seconds"`            // that the measurement took
}

// old is what happened to the flows that were there before the fault.
type old struct {
	Streams    int    `json:"streams"`
	Lost       int    `json:"lost"`          // ended
	Stalled    int    `json:"stalled"`       // moved nothing at the end
	Hit        int    `json:"hit,omitempty"` // streams at members that had the fault; the others are those above
	HitLost    int    `json:"hit-lost,omitempty"`
	HitStalled int    `json:"hit-stalled,omitempty"`
	Pause      millis `json:"pause"` // the longest of a stream that is not hit
	HitPause   millis `json:"hit-pause,omitempty"`
	HitEnd     millis `json:"hit-end,omitempty"` // the latest time from the fault to the end of a stream that was hit
	Bytes      int64  `json:"bytes"`
	Wrong      int    `json:"wrong"` // streams and datagrams with a wrong, a missing or somebody else's byte
	FirstWrong string `json:"first-wrong,omitempty"`
	FirstLost  string `json:"first-lost,omitempty"`

	Datagrams int    `json:"datagram-flows"`
	Replaced  int    `json:"replaced"` // flows that came to the upstream from another address
	Sent      int    `json:"sent"`     // datagrams, to members without the fault, from its begin on
	Answered  int    `json:"answered"`
	P99       millis `json:"p99"` // of the answers
}

// share returns how much of the datagrams was lost.
func (o *old) share() float64 {
	if o.Sent == 0 {
		return 0
	}
	return float64(o.Sent-o.Answered) / float64(o.Sent)
}

// clients is what happened to new clients.
type clients struct {
	world.Arrivals
	P50 millis `json:"p50"`
	P99 millis `json:"p99"`
	Max millis `json:"max"`
}

// newByPhase has new clients by when they came.
type newByPhase struct {
	Before clients `json:"before"`
	During clients `json:"during"`
	After  clients `json:"after"`
}

func (n *newByPhase) total() clients {
	var c clients
	for _, p := range []clients{n.Before, n.During, n.After} {
		c.Tried, c.Served, c.Refused, c.Cut, c.Late, c.Wrong = c.Tried+p.Tried, c.Served+p.Served, c.Refused+p.Refused, c.Cut+p.Cut, c.Late+p.Late, c.Wrong+p.Wrong
	}
	return c
}

func (o *outcome) json() string {
	b, _ := json.Marshal(o)
	return string(b)
}

// judge fills in the verdict.
func (o *outcome) judge(k *kind, r *relay, loose bool) {
	if o.Error != "" || o.Absent != "" {
		return
	}
	v := &verdict{relay: r, loose: loose}
	k.expect(o, v)
	o.Bad, o.Held = v.bad, len(v.bad) == 0
}
