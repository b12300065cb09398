package relay

import "github.com/penstock/penstock/internal/sys"

const ecnBits = 3 // of a TOS byte or traffic class, RFC 3168

// receiveTOS makes a socket towards the upstream tell the TOS byte of each datagram, if the flow keeps something of it,
// and notes the one that the socket sends.
func (f *datagramFlow) receiveTOS(kernel sys.Kernel, fd int, family sys.Family) {
	if f.cfg.Datagram.TOS == TOSNone || family == sys.Unix {
		return
	}
	v4, v6 := sys.TOS(kernel, fd, family)
	f.tos = v4
	if f.toV6() {
		f.tos = v6
	}
	sys.SetRecvTOS(kernel, fd, family, true)
}

// keepTOS returns what the flow keeps of the TOS byte of a datagram. It is the same for datagrams that may leave as one
// run.
func (f *datagramFlow) keepTOS(tos uint8) uint8 {
	switch f.cfg.Datagram.TOS {
	case TOSNone:
		return 0
	case TOSECN:
		return tos & ecnBits
	}
	return tos
}

// appendTOS appends the control message with the TOS byte of an item, if it is to be another one than that of the
// socket.
func (o *outbox) appendTOS(c []byte, it *item) []byte {
	f := it.f
	if f.cfg.Datagram.TOS == TOSNone || o.family() == sys.Unix {
		return c
	}
	own, v6 := f.tos, f.toV6()
	if o.port != nil {
		own, v6 = f.listener.cfg.Load().Socket.DSCP<<2, f.v6
	}
	tos := it.tos
	if f.cfg.Datagram.TOS == TOSECN {
		tos |= own &^ ecnBits
	}
	if tos == own {
		return c
	}
	return sys.AppendTOS(c, v6, tos)
}
