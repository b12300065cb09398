package relay

import (
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/relay/stats"
)

// simTold is what the engine has told of a flow when it was looked at last: what [Engine.Flow] returns, but for its sockets. Who a flow is,
// when it began and what has happened once never changes, and what is counted is never less, whichever process tells it; and its record
// says no less than that.
type simTold struct {
	info     FlowInfo
	timeouts Timeouts
	rate     int64         // see Flow.SetBandwidth
	process  int           // which has told it; 0: nobody has
	active   time.Duration // when something moved last, by the world's clock
	before   time.Duration // and as the process before has told it, at the first look of this one
	at       time.Duration // when that was told
}

// infoOf fills i with what the engine would tell of a flow, without asking the kernel.
func infoOf(f *Flow, i *FlowInfo) {
	f.info(i)
	i.Connect, i.FirstByte, i.Queued = f.connect, f.firstByte, f.queued
}

// lookAtTold compares what is told of a flow now with what was told before. name says which flow it is, and carries whether all that is read keeps it from being
// idle.
func (s *simulation) lookAtTold(told *simTold, name int, f *Flow, carries bool) {
	now, before := &s.looked.info, &told.info
	infoOf(f, now)
	s.lookAtID(f)
	at := s.world.Elapsed()
	active := s.sinceBegin(now.Start.Add(now.Duration - now.Idle))
	timeouts, rate := f.Timeouts(), f.owner.rate(f)
	if active > at {
		s.fail("flow %v has moved something at %v, and now it is %v", name, active, at)
	}
	if told.process != 0 {
		s.compareTold(name, &before.Record, &now.Record, before.State == stats.StateRelaying)
		if timeouts != told.timeouts {
			s.fail("flow %v had the timeouts %+v, and has %+v", name, told.timeouts, timeouts)
		}
		if rate != told.rate && before.State == stats.StateRelaying {
			s.fail("flow %v relayed at %d bytes a second, and has %d", name, told.rate, rate)
		}
		if now.State != stats.StateRelaying && before.State == stats.StateRelaying {
			s.fail("flow %v has relayed, and is %v", name, now.State)
		}
	}
	moved := now.Up.Read != before.Up.Read || now.Down.Read != before.Down.Read
	earlier := time.Duration(0)
	switch {
	case told.process == 0:
	case told.process != s.processes:
		if !moved { // or nobody has seen when
			earlier = told.active
		}
	default:
		if now.Attempts < before.Attempts {
			s.fail("flow %v has made %d attempts, and had made %d", name, now.Attempts, before.Attempts)
		}
		if moved && carries && active < told.at {
			s.fail("flow %v has moved something between %v and %v, and the last time is said to be %v", name, told.at, at, active)
		}
		if active < told.active {
			s.fail("flow %v had moved something last at %v, and is said to have at %v", name, told.active, active)
		}
	}
	*told = simTold{info: *now, timeouts: timeouts, rate: rate, process: s.processes, active: active, before: earlier, at: at}
}

// lookAtID checks that an ID names its flow, and is as short as it can be.
func (s *simulation) lookAtID(f *Flow) {
	loop, r, ok := splitFlowID(f.ID())
	if !ok || loop != f.owner.base().loop.Index || r != f.ref() {
		s.fail("the flow in slot %d of loop %d has the ID %d", f.ref().Slot, f.owner.base().loop.Index, f.ID())
	}
	if least := &idSizes[0]; loop>>least.loopBits == 0 && r.Slot>>least.slotBits == 0 && f.ID()>>(least.sizeBits+least.loopBits+least.slotBits) > uint64(r.Gen>>1) {
		s.fail("the flow in slot %d of loop %d has the ID %d, which is longer than it need be", r.Slot, loop, f.ID())
	}
}

// sinceBegin is a time by the world's clock.
func (s *simulation) sinceBegin(t time.Time) time.Duration {
	return s.world.Elapsed() - s.world.Now().Sub(t)
}

// compareTold compares what is told of a flow, or its record, with what was told before, of one that relayed then or did not yet.
func (s *simulation) compareTold(name int, before, now *Record, relayed bool) {
	differs := func(what string, was, now any) {
		s.fail("flow %v: its %s was %v, and is said to be %v", name, what, was, now)
	}
	if now.ID != before.ID {
		differs("ID", before.ID, now.ID)
	}
	if now.Peer != before.Peer {
		differs("peer", before.Peer, now.Peer)
	}
	if now.Client != before.Client {
		differs("client", before.Client, now.Client)
	}
	if !now.Start.Equal(before.Start) {
		differs("start", before.Start, now.Start)
	}
	if now.Queued < before.Queued {
		differs("time in queues", before.Queued, now.Queued)
	}
	if !relayed {
		return
	}
	if now.Attempts != before.Attempts && !(now.Attempts > before.Attempts && now.Upstream.Network.Datagrams()) {
		differs("number of attempts", before.Attempts, now.Attempts)
	}
	if now.Attempts == before.Attempts {
		if now.Upstream != before.Upstream {
			differs("upstream", before.Upstream, now.Upstream)
		}
		if now.Connect != before.Connect {
			differs("time to connect", before.Connect, now.Connect)
		}
	}
	if before.FirstByte != 0 && now.FirstByte != before.FirstByte {
		differs("time of the first byte", before.FirstByte, now.FirstByte)
	}
	if fewer(&before.Up, &now.Up) {
		differs("account of direction up", before.Up, now.Up)
	}
	if fewer(&before.Down, &now.Down) {
		differs("account of direction down", before.Down, now.Down)
	}
}

// fewer reports whether less is counted in a direction than was before.
func fewer(was, is *Transfer) bool {
	return is.Read < was.Read || is.Written < was.Written || is.Spliced < was.Spliced || is.Datagrams < was.Datagrams || is.DatagramsDropped < was.DatagramsDropped
}

// lookAtAddresses compares what is told of the sockets of flows that relay with what their peers know.
func (s *simulation) lookAtAddresses() {
	addr := func(ask func(int, *sys.Sockaddr) sys.Errno, fd int) (a Addr) {
		var sa sys.Sockaddr
		if ask(fd, &sa) == 0 {
			a = addrOf(&sa)
		}
		return a
	}
	for _, st := range s.core.streams.all {
		st.slab.Each(func(f *streamFlow) {
			x := s.flowOf(&f.Flow)
			if x == nil || f.state != streamRelaying || f.hasInner() || f.cause != CauseNone {
				return
			}
			told := new(FlowInfo)
			f.detail(told)
			if told.Loop != st.loop.Index {
				s.fail("flow %d is said to be on loop %d, and is on %d", x.id, told.Loop, st.loop.Index)
			}
			if fd := x.fd[sideClient]; fd >= 0 {
				if local, peer := addr(s.peers.PeerAddr, fd), addr(s.peers.LocalAddr, fd); told.Local != local || told.Peer != peer {
					s.fail("the client of flow %d is %v, and is connected to %v; it is said to be %v and %v", x.id, peer, local, told.Peer, told.Local)
				}
			}
			if fd := x.fd[sideUpstream]; fd >= 0 {
				if local := addr(s.peers.PeerAddr, fd).AddrPort; told.UpstreamLocal != local {
					s.fail("the upstream of flow %d was connected from %v, and it is said to be %v", x.id, local, told.UpstreamLocal)
				}
			}
			if (told.ClientTCP != nil) != f.tcp[sideClient] || (told.UpstreamTCP != nil) != (f.tcp[sideUpstream] && f.fd[sideUpstream] >= 0) || f.tcp[sideClient] == x.unix[sideClient] {
				s.fail("flow %d: sockets of TCP are %v, and it is said: %v and %v", x.id, f.tcp, told.ClientTCP, told.UpstreamTCP)
			}
			now := &s.looked.info
			if infoOf(&f.Flow, now); told.Connect != now.Connect || told.FirstByte != now.FirstByte || told.Queued != now.Queued {
				s.fail("flow %d: %+v is told, rather than %+v", x.id, told.Record, now.Record)
			}
		})
	}
}

// errorFits reports whether the error in a record is one of its cause.
func errorFits(c Cause, err error) bool {
	e, ok := err.(sys.Errno)
	reset := e == sys.ECONNRESET || e == sys.EPIPE
	switch c {
	case CauseEnd, CauseQueueTimeout, CauseFirstByte, CauseLife, CauseIdle, CauseHalfClosed, CauseDrained, CauseClosed, CauseAnswered, CauseEvicted, CauseKilled, CauseRemoved, CauseOverload:
		return err == nil
	case CauseClientReset, CauseUpstreamReset:
		return ok && reset
	case CauseClientFailed, CauseUpstreamFailed:
		return err != nil && !(ok && reset)
	case CauseNoDescriptors, CauseNoPorts:
		return err != nil
	}
	return true
}
