package hold

import (
	"crypto/tls"

	"github.com/penstock/penstock/internal/tlsconn"
)

// TLSInKernel returns a configuration for Flow.Terminate and Flow.Originate of package relay whose connections are given to the kernel when
// their flows are settled, where it has TLS 1.3 ([CheckKernelTLS]): the keys are in the socket from then on, and nowhere else. Such a
// flow outlives its process like one without TLS, and its bytes can be spliced.
//
// A connection stays with the process, and ends with it, if it is older than TLS 1.3 or no plain TCP, or if its keys have changed since its
// handshake. One that is the kernel's ends when the peer changes its keys, with [ErrKeyUpdate]. *cfg must not change.
func TLSInKernel(cfg *tls.Config) *tls.Config {
	c := cfg.Clone()
	c.KeyLogWriter = tlsconn.Marked{Next: cfg.KeyLogWriter}
	if !c.SessionTicketsDisabled && c.WrapSession == nil && c.UnwrapSession == nil {
		c.WrapSession, c.UnwrapSession = cfg.EncryptTicket, cfg.DecryptTicket // or each copy would make keys of its own
	}
	return c
}

// ErrKeyUpdate is Record.Err of package relay where a peer has changed its keys (RFC 8446, 4.6.3) and the connection was the kernel's: the
// next ones follow from a secret that this side has forgotten.
var ErrKeyUpdate = tlsconn.ErrKeyUpdate
