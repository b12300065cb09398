package testkernel

import "github.com/penstock/penstock/internal/sys"

// Datagram implements [sys.Kernel].
func (k *Kernel) Datagram(family sys.Family) (int, sys.Errno) {
	if _, e := k.ask(Datagram, 0); e != 0 {
		return -1, e
	}
	return k.real.Datagram(family)
}

// RecvBatch implements [sys.Kernel].
func (k *Kernel) RecvBatch(fd int, family sys.Family, v *sys.Vector, from, n int) (int, sys.Errno) {
	n, e := k.ask(RecvBatch, n)
	if e != 0 {
		return 0, e
	}
	return k.real.RecvBatch(fd, family, v, from, n)
}

// SendBatch implements [sys.Kernel]. While there are faults it sends one message per call, so that
// a fault for runs hits each of them.
func (k *Kernel) SendBatch(fd int, v *sys.Vector, from, n int) (int, sys.Errno) {
	c := SendBatch
	if _, run := v.Segmented(from); run {
		c = SendRun
	}
	if k.armed.Load() {
		n = 1
	}
	n, e := k.ask(c, n)
	if e != 0 {
		return 0, e
	}
	return k.real.SendBatch(fd, v, from, n)
}
