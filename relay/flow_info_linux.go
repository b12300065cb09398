package relay

import (
	"math"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/relay/stats"
)

// info fills i with what the flow is doing.
func (f *Flow) info(i *FlowInfo) {
	o := f.owner.base()
	peer := f.Peer()
	*i = FlowInfo{
		Record: Record{
			ID: f.ID(), Listener: f.listener, Value: f.value, Client: peer, Peer: peer, Upstream: f.upstream(), Attempts: int(f.attempts),
			Start: o.shared.start.Add(f.start), Duration: o.loop.Now - f.start,
			Up: f.owner.transfer(f, up), Down: f.owner.transfer(f, down),
		},
		State: stats.StateRelaying, Idle: o.loop.Now - f.active,
	}
	if f.client != nil {
		i.Client = *f.client
	}
	f.owner.describe(f, i)
}

// detail fills d with all that is known of the flow.
func (f *Flow) detail(d *FlowInfo) {
	f.info(d)
	d.Loop, d.Local, d.UpstreamLocal = f.owner.base().loop.Index, f.Local(), f.UpstreamLocal().AddrPort
	d.Connect, d.FirstByte, d.Queued = f.connect, f.firstByte, f.queued
	if d.State == stats.StateQueued {
		d.Queued += f.owner.base().loop.Now - f.since
	}
	d.ClientTLS, d.UpstreamTLS = f.owner.tls(f, sideClient), f.owner.tls(f, sideUpstream)
	t := f.owner.base()
	d.ClientTCP, d.UpstreamTCP = t.tcpInfo(f.owner.tcp(f, sideClient)), t.tcpInfo(f.owner.tcp(f, sideUpstream))
}

// fill writes the flow's account into the record.
func (t *tenant) fill(f *Flow, c Cause, err error) {
	r := &t.record
	*r = Record{
		ID: f.ID(), Listener: f.listener, Value: f.value, Peer: f.Peer(), Upstream: f.upstream(), Attempts: int(f.attempts),
		Start: t.shared.start.Add(f.start), Connect: f.connect, FirstByte: f.firstByte, Queued: f.queued, Duration: t.loop.Now - f.start,
		Cause: c, Err: err,
		Up: f.owner.transfer(f, up), Down: f.owner.transfer(f, down),
	}
	r.ClientTLS, r.UpstreamTLS = f.owner.tls(f, sideClient), f.owner.tls(f, sideUpstream)
	r.Client = r.Peer
	if f.client != nil {
		r.Client = *f.client
	}
}

// handOut calls done with the record.
func (t *tenant) handOut(done func(*Record)) {
	done(&t.record)
	t.record = Record{}
}

// tcpInfo asks the kernel about a socket of TCP; fd is negative if it is none.
func (t *tenant) tcpInfo(fd int) *stats.TCPInfo {
	k := &t.info
	if fd < 0 || t.shared.kernel.TCPInfo(fd, k) != 0 {
		return nil
	}
	micro := func(n uint32) time.Duration {
		if n == math.MaxUint32 { // not known
			return 0
		}
		return time.Duration(n) * time.Microsecond
	}
	i := &stats.TCPInfo{
		State: tcpStates[0], RTT: micro(k.Rtt), RTTVar: micro(k.Rttvar), MinRTT: micro(k.Min_rtt), Cwnd: int(k.Snd_cwnd), MSS: int(k.Snd_mss),
		Unacked: int(k.Unacked), Lost: int(k.Lost), Retransmits: int(k.Total_retrans), BytesAcked: int64(k.Bytes_acked),
		BytesReceived: int64(k.Bytes_received), NotSent: int64(k.Notsent_bytes), RecvSpace: int64(k.Rcv_space), DeliveryRate: int64(k.Delivery_rate),
		SACK: k.Options&sys.OptSACK != 0, ECN: k.Options&sys.OptECN != 0, Timestamps: k.Options&sys.OptTimestamps != 0,
		WindowScale: k.Options&sys.OptWScale != 0, FastOpen: k.Options&sys.OptSynData != 0, MPTCP: sys.IsMPTCP(fd),
	}
	if int(k.State) < len(tcpStates) {
		i.State = tcpStates[k.State]
	}
	if k.Pacing_rate != math.MaxUint64 {
		i.PacingRate = int64(k.Pacing_rate)
	}
	i.Congestion, _ = sys.Congestion(fd)
	return i
}

// tcpStates are the kernel's states by number, include/net/tcp_states.h.
var tcpStates = [...]string{"unknown", "established", "syn-sent", "syn-recv", "fin-wait1", "fin-wait2", "time-wait", "closed", "close-wait",
	"last-ack", "listen", "closing", "new-syn-recv"}
