package relay

import (
	"errors"
	"net/netip"
	"time"

	"github.com/penstock/penstock/internal/ledger"
	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/relay/hold"
)

// A datagram flow that is kept has a record of what cannot be found out otherwise: who the client is,
// and what has moved. The socket towards its upstream is held; the one towards the client is the
// listener's. So its session and its ports outlive the process, and so does what waits in the queues
// of the sockets. Datagrams that the process had received and not yet sent are lost: those of one
// turn of the loop, and those held for upstreams whose sockets were full.

// Flags of the record of a datagram flow; see keep_record_linux.go for the others.
const (
	recordAnswered = 1 << (24 + iota)
	recordVerified
	recordPrefaced // the upstream was sent the datagram that has the preface of the record's bytes in front
	recordShares   // other clients share the address of the proxy in front; the bytes tell them apart
	recordDivided  // the client's address may have other flows
)

// settle implements settler.
func (d *datagrams) settle(slot uint32, r ledger.Record, fds *[2]int) verdict {
	f := d.slab.At(slot)
	p := f.port
	fds[0], fds[1] = int(f.fd), -1
	r.SetKind(ledger.KindDatagram)
	g := r.Gram()
	if p.family == sys.Unix {
		if unixName(unixPath(f.path)) != f.path {
			return settleNever
		}
	} else {
		client, scope := sys.GetAddrPort(f.name[:f.nameLen])
		g.SetClient(recordAddr(client, scope))
	}
	g.SetLocal(recordAddr(netip.AddrPortFrom(f.localAddr, 0), f.zone))
	if p.listenSocket.key != (holdKey{}) && !f.astray && !d.share.shared(p.address) {
		g.SetSocket(uint32(numberOf(p.listenSocket.key)) + 1)
	}
	var flags uint32
	if f.builtin() {
		flags |= recordDiscard
		if f.echo {
			flags ^= recordDiscard | recordEcho
		}
	}
	if f.shares() {
		flags |= recordShares
	}
	if f.divided() {
		flags |= recordDivided
	}
	r.SetFlags(flags)
	if d.writeRecord(&f.Flow, r, "", nil) != nil {
		d.loopStats.KeepErrors++
		d.keep.ledger.SetBlob(r, nil)
		return settleNever
	}
	d.note(f, r)
	return settleNow
}

// settled implements settler.
func (d *datagrams) settled(slot uint32) {
	f := d.slab.At(slot)
	f.kept = true
	r := d.record(f)
	r.SetFlags(r.Flags() | recordHeld)
}

func (d *datagrams) encoder(*Flow) func(*hold.Encoder) { return nil }

// record returns the record of a flow that is kept.
func (d *datagrams) record(f *datagramFlow) ledger.Record { return d.keep.ledger.Record(f.slot) }

// noteLater tells the end of the turn to note what f has moved.
func (d *datagrams) noteLater(f *datagramFlow) {
	if f.kept && !f.noting {
		f.noting = true
		d.noting = append(d.noting, f.ref())
	}
}

// noteAll notes what flows have moved in this turn.
func (d *datagrams) noteAll() {
	for _, r := range d.noting {
		if f := d.slab.Find(r); f != nil && f.kept {
			f.noting = false
			d.note(f, d.record(f))
		}
	}
	d.noting = d.noting[:0]
}

// note writes what changes while the flow goes on.
func (d *datagrams) note(f *datagramFlow, r ledger.Record) {
	g := r.Gram()
	g.SetActive(d.noteTime(f.active))
	for i := range f.moved {
		m, to := &f.moved[i], g.Moved(i)
		to.SetRead(m.read)
		to.SetWritten(m.written)
		to.SetDatagrams(m.datagrams)
		to.SetDropped(m.dropped)
	}
	g.SetRequests(uint64(f.requests))
	g.SetAnswers(uint64(f.answers))
	if f.answered {
		r.SetFirstByte(int64(f.firstByte))
		r.SetFlags(r.Flags() | recordAnswered)
	}
	if f.verified {
		r.SetFlags(r.Flags() | recordVerified)
	}
}

// noteBegin notes that the code of a flow runs that is kept.
func (d *datagrams) noteBegin(f *datagramFlow) { d.keep.turn.Begin(f.slot, f.gen) }

// noteEnd notes that it does no more. The flow had generation gen, and may have ended.
func (d *datagrams) noteEnd(f *datagramFlow, gen uint32) {
	d.keep.turn.End()
	if f.suspect && f.alive(gen) {
		f.suspect = false
		d.record(f).SetCrashes(0) // it was not this flow that the process died of
	}
}

// noteFinal notes that the flow ends, so that the next process finishes that.
func (d *datagrams) noteFinal(f *datagramFlow, c Cause, err error) {
	if f.kept {
		d.writeFinal(f, c, err)
	}
}

func (d *datagrams) writeFinal(f *datagramFlow, c Cause, err error) {
	r := d.record(f)
	d.note(f, r)
	e, _ := errors.AsType[sys.Errno](err)
	r.SetErrno(uint16(e))
	r.SetCause(uint8(c))
	r.SetState(recordFinal)
}

// unkeep ends the keeping of a flow whose socket is closed or has another use from now on. It returns
// the key of the socket, which is still held if the flow was kept.
func (d *datagrams) unkeep(f *datagramFlow) (k holdKey) {
	switch {
	case f.kept:
		f.kept, f.noting = false, false
		k = d.keep.forget(f.ref())
	case d.keep != nil:
		k = d.keep.flowKey(f.ref())
	}
	return k
}

// dropFlow is unkeep, and has the socket dropped.
func (d *datagrams) dropFlow(f *datagramFlow) {
	if f.kept {
		d.keep.holding.drop(d.unkeep(f))
	}
}

// unixName is the inverse of unixPath: the address of a Unix socket as the kernel writes it. unix(7).
func unixName(path string) string {
	var sa sys.Sockaddr
	if path == "" || sa.SetUnix(path) != nil {
		return ""
	}
	return string(sa.Raw())
}

func recordAddr(ap netip.AddrPort, scope uint32) (a ledger.Addr) {
	a.Port, a.Zone = ap.Port(), scope
	switch ip := ap.Addr(); {
	case ip.Is4():
		b := ip.As4()
		a.Len = uint8(copy(a.IP[:], b[:]))
	case ip.Is6():
		a.IP = ip.As16()
		a.Len = 16
	}
	return a
}

// noted is the inverse of recordAddr; an address that is no address is not valid.
func noted(a ledger.Addr) netip.AddrPort {
	switch a.Len {
	case 4:
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(a.IP[:4])), a.Port)
	case 16:
		return netip.AddrPortFrom(netip.AddrFrom16(a.IP), a.Port)
	}
	return netip.AddrPort{}
}

// activeBits is how many bits of a time are not noted; see [ledger.Gram.Active].
const activeBits = 24

// noteTime returns a time of the loop as a record has it.
func (d *datagrams) noteTime(at time.Duration) uint32 {
	return max(1, uint32((d.keep.base+int64(at))>>activeBits))
}
