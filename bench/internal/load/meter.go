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
	cfg   Config
	relay []int // its processes, looked up once traffic flows
	start time.Time
	cpu   time.Duration
	first time.Duration // of the relay's first process
	own   time.Duration
	rest  time.Duration // sink's, and the CPUs' idle time
}

func (m *meter) begin() (err error) {
	m.relay = proc.Tree(m.cfg.Relay)
	if m.own, err = proc.CPU([]int{os.Getpid()}); err != nil {
		return err
	}
	if m.rest, err = m.idleAndSink(); err != nil {
		return err
	}
	if m.first, err = proc.CPU(m.relay[:1]); err != nil {
		return err
	}
	m.cpu, err = proc.CPU(m.relay)
	m.start = time.Now()
	return err
}

// idleAndSink returns the sink's CPU time and the idle time of the CPUs.
func (m *meter) idleAndSink() (time.Duration, error) {
	idle, err := proc.Idle(m.cfg.CPUs)
	if err != nil || m.cfg.Sink == 0 {
		return idle, err
	}
	sink, err := proc.CPU([]int{m.cfg.Sink})
	return idle + sink, err
}

func (m *meter) end(r *Result) error {
	r.Window = time.Since(m.start)
	cpu, err := proc.CPU(m.relay)
	if err != nil {
		return fmt.Errorf("the relay ended under load: %w", err)
	}
	first, err := proc.CPU(m.relay[:1])
	if err != nil {
		return err
	}
	r.FirstCPU = first - m.first
	own, err := proc.CPU([]int{os.Getpid()})
	r.RelayCPU, r.LoadCPU = cpu-m.cpu, own-m.own
	if err != nil {
		return err
	}
	rest, err := m.idleAndSink()
	if err != nil {
		return err
	}
	// The kernel counts idle time in hundredths of a second, so the difference may be slightly
	// negative.
	r.Others = max(0, time.Duration(proc.Count(m.cfg.CPUs))*r.Window-r.RelayCPU-r.LoadCPU-(rest-m.rest))
	if r.RSSAfter, err = proc.RSS(m.relay); err != nil || m.cfg.Settled == nil {
		return err
	}
	r.Kept = true
	r.Settled, err = m.cfg.Settled()
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

// fill writes a unique message, so that the echo of an older one, or of another connection's, is
// not mistaken for its echo.
func fill(msg []byte, id uint64) {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], id)
	for i := range msg {
		msg[i] = b[i&7] + byte(i)
	}
}
