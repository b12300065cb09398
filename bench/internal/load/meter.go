//go:build linux

package load

import (
	"encoding/binary"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/penstock/penstock/bench/internal/proc"
	"github.com/penstock/penstock/bench/internal/stat"
)

// meter reads the clocks at both ends of the window.
type meter struct {
	root  int   // the relay's first process
	relay []int // all of them, looked up when traffic already flowed
	start time.Time
	cpu   time.Duration
	own   time.Duration
}

func (m *meter) begin() (err error) {
	m.relay = proc.Tree(m.root)
	if m.own, err = proc.CPU([]int{os.Getpid()}); err != nil {
		return err
	}
	m.cpu, err = proc.CPU(m.relay)
	m.start = time.Now()
	return err
}

func (m *meter) end(r *Result) error {
	r.Window = time.Since(m.start)
	cpu, err := proc.CPU(m.relay)
	if err != nil {
		return fmt.Errorf("the relay ended under load: %w", err)
	}
	own, err := proc.CPU([]int{os.Getpid()})
	r.RelayCPU, r.LoadCPU = cpu-m.cpu, own-m.own
	if err != nil {
		return err
	}
	r.RSSAfter, err = proc.RSS(m.relay)
	return err
}

// latency collects every round trip of a window, in nanoseconds.
type latency []uint32

func (l *latency) add(d time.Duration) {
	*l = append(*l, uint32(min(d, 1<<32-1)))
}

func (l latency) put(r *Result) {
	slices.Sort(l)
	r.P50 = time.Duration(stat.Percentile(l, 0.50))
	r.P99 = time.Duration(stat.Percentile(l, 0.99))
}

// fill writes a message that no other has: the echo of an older one, or of
// another connection's, does not pass for it.
func fill(msg []byte, id uint64) {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], id)
	for i := range msg {
		msg[i] = b[i&7] + byte(i)
	}
}
