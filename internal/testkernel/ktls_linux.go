package testkernel

import "github.com/penstock/penstock/internal/sys"

// GiveTLS implements [sys.Kernel].
func (k *Kernel) GiveTLS(fd int, out, in *sys.TLSKeys) (bool, sys.Errno) {
	return k.real.GiveTLS(fd, out, in)
}

// RecvRecord implements [sys.Kernel].
func (k *Kernel) RecvRecord(fd int, p []byte, peek bool) (int, uint8, sys.Errno) {
	return k.real.RecvRecord(fd, p, peek)
}

// SendRecord implements [sys.Kernel].
func (k *Kernel) SendRecord(fd int, kind uint8, p []byte) sys.Errno {
	return k.real.SendRecord(fd, kind, p)
}

// GiveTLS implements [sys.Kernel].
func (k *Deadly) GiveTLS(fd int, out, in *sys.TLSKeys) (bool, sys.Errno) {
	c := k.ahead("give-tls")
	begun, e := k.real.GiveTLS(fd, out, in)
	k.behind("give-tls", c)
	return begun, e
}

// RecvRecord implements [sys.Kernel].
func (k *Deadly) RecvRecord(fd int, p []byte, peek bool) (int, uint8, sys.Errno) {
	c := k.ahead("recv-record")
	n, kind, e := k.real.RecvRecord(fd, p, peek)
	k.behind("recv-record", c)
	return n, kind, e
}

// SendRecord implements [sys.Kernel].
func (k *Deadly) SendRecord(fd int, kind uint8, p []byte) sys.Errno {
	c := k.ahead("send-record")
	e := k.real.SendRecord(fd, kind, p)
	k.behind("send-record", c)
	return e
}
