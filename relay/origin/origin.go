// Package origin tells an engine of package relay which clients the datagrams of a proxy come from. Its API may
// change.
//
// A proxy puts a header in front of datagrams, for instance one of the PROXY protocol. The engine removes it, and the
// flow is that of the client which the header names:
//
//	cfg.Datagram.Origin = &origin.Config{Trusts: isProxy, Read: readHeader}
package origin

import "net/netip"

// Config says which senders of a UDP listener are proxies, and what their headers mean. Its functions run on event
// loops, several at a time, and must not block. The bytes that they are given are valid during the call only.
type Config struct {
	// Trusts reports whether a sender is a proxy. Datagrams of other senders are not looked at.
	Trusts func(sender netip.Addr) bool

	// Read reads the header at the beginning of a datagram of a proxy, and reports whether there is one that is whole.
	// Datagrams without one are dropped, as stats.DropProxyHeader.
	Read func(b []byte) (Header, bool)

	// First says that only the first datagram of a flow has a header: what the same address and port of the proxy
	// sends afterwards belongs to that flow. If it sends another header, which names another client, that datagram is
	// dropped and the flow ends as refused, because either the proxy has given the port to another client, or a client
	// has sent what looks like a header. If it is false, each datagram has one, and many clients may come from one
	// address and port of the proxy.
	First bool

	// Begin, if not nil, is called with the header of a new flow. What it returns is Flow.Value in Hooks.Admit.
	Begin func(header []byte) any
}

// Header is what a header says.
type Header struct {
	Len int // of the header in bytes
	// Client is the client, and To the address that it has sent to; zero if the header names none, and the
	// proxy itself is the client.
	Client, To netip.AddrPort
	// Replies says that each reply to the client begins with the same header.
	Replies bool
}
