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

// infoOf returns what the engine would tell of a flow, without asking the kernel.
func infoOf(f *Flow) (i FlowInfo) {
	f.info(&i)
	i.Connect, i.FirstByte, i.Queued = f.connect, f.firstByte, f.queued
	return i
}

// lookAtTold compares what is told of a flow now with what was told before. name says which flow it is, and carries whether all that is read keeps it from being
// idle.
func (s *simulation) lookAtTold(told *simTold, name any, f *Flow, carries bool) {
	now, before := infoOf(f), told.info
	at := s.world.Elapsed()
	active := s.sinceBegin(now.Start.Add(now.Duration - now.Idle))
	first, other := told.process == 0, told.process != s.processes
	earlier := told.at
	lasted := told.active
	timeouts, rate := told.timeouts, told.rate
	*told = simTold{info: now, timeouts: f.Timeouts(), rate: f.owner.rate(f), process: s.processes, active: active, at: at}
	if active > at {
		s.fail("flow %v has moved something at %v, and now it is %v", name, active, at)
	}
	if first {
		return
	}
	s.compareTold(name, &before.Record, &now.Record, before.State == stats.StateRelaying)
	if told.timeouts != timeouts {
		s.fail("flow %v had the timeouts %+v, and has %+v", name, timeouts, told.timeouts)
	}
	if told.rate != rate && before.State == stats.StateRelaying {
		s.fail("flow %v relayed at %d bytes a second, and has %d", name, rate, told.rate)
	}
	if now.State != stats.StateRelaying && before.State == stats.StateRelaying {
		s.fail("flow %v has relayed, and is %v", name, now.State)
	}
	if other {
		told.before = active
		if now.Up.Read == before.Up.Read && now.Down.Read == before.Down.Read {
			told.before = lasted
		}
		return
	}
	if now.Attempts < before.Attempts {
		s.fail("flow %v has made %d attempts, and had made %d", name, now.Attempts, before.Attempts)
	}
	moved := now.Up.Read != before.Up.Read || now.Down.Read != before.Down.Read
	if moved && carries && active < earlier {
		s.fail("flow %v has moved something between %v and %v, and the last time is said to be %v", name, earlier, at, active)
	}
	if active < lasted {
		s.fail("flow %v had moved something last at %v, and is said to have at %v", name, lasted, active)
	}
}

// sinceBegin is a time by the world's clock.
func (s *simulation) sinceBegin(t time.Time) time.Duration {
	return s.world.Elapsed() - s.world.Now().Sub(t)
}

// compareTold compares what is told of a flow, or its record, with what was told before, of one that relayed then or did not yet.
func (s *simulation) compareTold(name any, before, now *Record, relayed bool) {
	same := func(what string, is bool, was, now any) {
		if !is {
			s.fail("flow %v: its %s was %v, and is said to be %v", name, what, was, now)
		}
	}
	same("ID", now.ID == before.ID || s.damaged, before.ID, now.ID)
	same("peer", now.Peer == before.Peer, before.Peer, now.Peer)
	same("client", now.Client == before.Client, before.Client, now.Client)
	same("start", now.Start.Equal(before.Start), before.Start, now.Start)
	same("time in queues", now.Queued >= before.Queued, before.Queued, now.Queued)
	if !relayed {
		return
	}
	same("number of attempts", now.Attempts == before.Attempts || now.Attempts > before.Attempts && now.Upstream.Network.Datagrams(), before.Attempts, now.Attempts)
	if now.Attempts == before.Attempts {
		same("upstream", now.Upstream == before.Upstream, before.Upstream, now.Upstream)
		same("time to connect", now.Connect == before.Connect, before.Connect, now.Connect)
	}
	same("time of the first byte", before.FirstByte == 0 || now.FirstByte == before.FirstByte, before.FirstByte, now.FirstByte)
	for dir, was := range [2]*Transfer{up: &before.Up, down: &before.Down} {
		is := [2]*Transfer{up: &now.Up, down: &now.Down}[dir]
		fewer := is.Read < was.Read || is.Written < was.Written || is.Spliced < was.Spliced || is.Datagrams < was.Datagrams || is.DatagramsDropped < was.DatagramsDropped
		same([2]string{up: "account of direction up", down: "account of direction down"}[dir], !fewer, *was, *is)
	}
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
			var told FlowInfo
			f.detail(&told)
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
			if now := infoOf(&f.Flow); told.Connect != now.Connect || told.FirstByte != now.FirstByte || told.Queued != now.Queued {
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
