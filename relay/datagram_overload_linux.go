package relay

import "github.com/penstock/penstock/internal/sys"

// trimRests bounds how many resting sockets a trim closes on each loop.
const trimRests = 256

// blocked reports whether a flow holds datagrams that its upstream does not take; and whether it may be
// ended for being idle, which is always so between two turns.
func (d *datagrams) blocked(f *datagramFlow) (blocked, relaying bool) {
	return f.held != nil, !f.sniffed && f.evictable(nil)
}

// memory returns the bytes that a flow holds in user space and in the buffers of its socket. That of its
// port belongs to all of them.
func (d *datagrams) memory(f *datagramFlow) (user, sockets int64) {
	user = int64(cap(f.held))
	if f.fd >= 0 {
		sockets = sys.SocketMemory(d.shared.kernel, int(f.fd))
	}
	return user, sockets
}

// trim gives back memory for replies and sockets that rest.
func (d *datagrams) trim() {
	clear(d.spareMemory[0])
	clear(d.spareMemory[1])
	d.spareMemory[0], d.spareMemory[1] = d.spareMemory[0][:0], d.spareMemory[1][:0]
	for range min(trimRests, d.rests.len()) {
		d.closeOldestRest()
	}
}
