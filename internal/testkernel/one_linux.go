package testkernel

import "github.com/penstock/penstock/internal/sys"

// RecvOne implements [sys.Kernel].
func (k *Kernel) RecvOne(fd int, m *sys.Message, p []byte) (int, sys.Errno) {
	m.Clear()
	n, e := k.ask(RecvOne, len(p))
	if e != 0 {
		return 0, e
	}
	return k.real.RecvOne(fd, m, p[:n])
}

// SendOne implements [sys.Kernel].
func (k *Kernel) SendOne(fd int, m *sys.Message, p []byte) (int, sys.Errno) {
	m.Clear()
	n, e := k.ask(SendOne, len(p))
	if e != 0 {
		return 0, e
	}
	return k.real.SendOne(fd, m, p[:n])
}

// Disconnect implements [sys.Kernel].
func (k *Kernel) Disconnect(fd int) sys.Errno {
	if _, e := k.ask(Disconnect, 0); e != 0 {
		return e
	}
	return k.real.Disconnect(fd)
}

// ShutdownBoth implements [sys.Kernel].
func (k *Kernel) ShutdownBoth(fd int) sys.Errno {
	if _, e := k.ask(ShutdownBoth, 0); e != 0 {
		return e
	}
	return k.real.ShutdownBoth(fd)
}
