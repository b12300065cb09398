package relay

import (
	"math"
	"net/netip"
	"time"

	"github.com/penstock/penstock/datapath"
	"github.com/penstock/penstock/internal/segment"
	"github.com/penstock/penstock/internal/sys"
)

// runLimit is what one run in one direction may hold.
type runLimit struct {
	segment.Limit
	refusal segment.Refusal
}

// runsOf returns the limit for a message whose datagrams have the given size.
func (d *datagrams) runsOf(f *datagramFlow, dir, size int) segment.Limit {
	m := &f.runs[dir]
	if size > m.refusal.Largest {
		if d.now().Before(m.refusal.Until) {
			return segment.Limit{Count: 1, Bytes: m.Bytes}
		}
		m.refusal = segment.None
	}
	return m.Limit
}

// setRuns says what runs of f in one direction may hold.
func (d *datagrams) setRuns(f *datagramFlow, dir int, family sys.Family, v6 bool) {
	m := runLimit{Limit: segment.Limit{Count: 1, Bytes: math.MaxInt}, refusal: segment.None}
	switch {
	case family == sys.Unix:
		f.why[dir] = datapath.WhyKernel
	case !d.gso:
		f.why[dir] = datapath.WhyOff
		if !d.shared.cfg.NoGSO {
			f.why[dir] = datapath.WhyKernel
		}
	default:
		m.Limit = segment.Limit{Count: segment.MaxCount, Bytes: segment.MaxBytes4}
		if v6 {
			m.Bytes = segment.MaxBytes6
		}
		f.why[dir] = datapath.WhyNone
		if d.refusals.Len() > 0 {
			m.refusal = d.refusals.Of(d.destination(f, dir), d.now())
		}
		if m.refusal != segment.None {
			f.why[dir] = datapath.WhyKernel
		}
	}
	f.runs[dir] = m
}

// refuseRuns notes that a run of datagrams of the given size was refused on its
// way, and that the datagrams went through one by one.
func (d *datagrams) refuseRuns(f *datagramFlow, dir int, size int, e sys.Errno) {
	f.runs[dir].refusal = d.refusals.Add(d.destination(f, dir), size, e != sys.EIO, d.now())
	f.why[dir] = datapath.WhyKernel
}

func (d *datagrams) destination(f *datagramFlow, dir int) netip.Addr {
	if dir == down {
		return addrPort(f.name[:f.nameLen]).Addr()
	}
	if f.to == nil {
		return netip.Addr{}
	}
	return f.to.AddrPort.Addr()
}

// now is the time of this turn.
func (d *datagrams) now() time.Time { return d.shared.start.Add(d.loop.Now) }
