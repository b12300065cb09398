package relay

import (
	"github.com/penstock/penstock/internal/pump"
	"github.com/penstock/penstock/internal/sys"
)

// end closes a flow, gives home what it held, and hands out its record.
func (l *loop) end(f *Flow, c Cause, err error) {
	switch f.state {
	case flowParked:
		f.queued += l.now - f.since
	case flowStarved:
		l.engine.starved.Add(-1) // flowEnded wakes the listeners
	}
	l.freeExtra(f)
	var dropped int64
	for h := range f.half {
		dropped += f.half[h].Close(&l.env)
	}
	done := f.done
	if done != nil {
		l.fill(f, c, err)
	}
	for side, fd := range f.fd {
		if fd < 0 {
			continue
		}
		switch {
		case !f.tcp[side]:
		case c.broken() || !f.complete(side):
			sys.SetLingerReset(int(fd))
		case !f.over(side):
			l.discard(int(fd))
		}
		l.env.Kernel.Close(int(fd))
	}
	l.stats.Ended[c]++
	l.stats.BytesDropped += dropped
	l.wheel.remove(f.index)
	if f.listener == nil && f.to != nil {
		l.addrs = append(l.addrs, f.to) // notePeers took it
	}
	l.slab.put(f)
	if done != nil {
		done(&l.record)
		l.record = Record{}
	}
	l.load.Add(-1) // after its record: Drain returns when none is left
	l.flowEnded()
}

// complete reports whether the stream towards a side has ended well: its last
// byte was delivered, and its end too, or close(2) brings that now. Any other
// side is reset, so that a stream that was cut short does not look complete; a
// Unix socket cannot reset its peer, which sees an end (docs/causes.md). One
// that is complete is not reset, because that would destroy what its socket
// still has to send.
func (f *Flow) complete(side int) bool {
	for h := range f.half {
		if f.dstSide(h) == side && f.wait[h] == pump.End {
			return true
		}
	}
	return false
}

// discard takes what a TCP socket has received and nobody will read: close(2) with
// unread data is a reset, which would destroy what the socket still has to send. A
// peer that goes on sending is reset all the same, by the kernel.
func (l *loop) discard(fd int) {
	const most = 8 // of 1 MiB; a receive buffer has 6 MiB at most, net.ipv4.tcp_rmem
	for range most {
		if n, _ := l.env.Kernel.Discard(fd, l.env.Scratch, true); n <= 0 {
			return
		}
	}
}

// flowEnded is called when a flow has given back what it had.
func (l *loop) flowEnded() {
	l.wakeResting()
	l.quieten()
}

// fill writes the flow's account into the loop's record.
func (l *loop) fill(f *Flow, c Cause, err error) {
	r := &l.record
	*r = Record{
		ID: f.ID(), Listener: f.listener, Value: f.value, Peer: f.Peer(), Attempts: int(f.attempts),
		Start: l.engine.start.Add(f.start), Connect: f.connect, FirstByte: f.firstByte, Queued: f.queued, Duration: l.now - f.start,
		Cause: c, Err: err,
		Up: f.transfer(sideA), Down: f.transfer(sideB),
	}
	r.Client = r.Peer
	if f.client != nil {
		r.Client = *f.client
	}
	switch {
	case f.to != nil:
		r.Upstream = *f.to
	case f.listener == nil:
		r.Upstream = f.remote(sideB)
	}
}

func (f *Flow) transfer(h int) Transfer {
	half := &f.half[h]
	t := Transfer{Read: half.In, Written: half.Out, Spliced: half.Spliced}
	path, why := half.Path()
	t.Path, t.Why = Path(path), Why(why)
	return t
}
