// Package xnet offers the batch calls of golang.org/x/net on top of package dgram. Its API may
// change, as long as that of golang.org/x/net may, whose types it has; CHANGELOG.md then says how to follow. A
// [Conn] has ReadBatch and WriteBatch with [ipv4.Message], which is the same type as
// ipv6.Message, and the methods of *net.UDPConn. Programs that use ipv4.PacketConn can
// use it unchanged, and so can quic-go:
//
//	udp, err := net.ListenUDP("udp", addr)
//	conn, err := xnet.New(udp, dgram.Config{})
//	tr := &quic.Transport{Conn: conn}
//
// Where the kernel supports it, a Conn receives super-packets (see package dgram) and
// returns their datagrams one by one, so buffers may be as short as the longest expected
// datagram. This copies each datagram once, which costs far less than one system call
// per datagram.
//
// There are differences from x/net. Counts are never negative. Addresses of received
// messages are shared and must not be modified. Consecutive messages to one destination
// may be sent as one run. With super-packets, reads support no flags except for
// MSG_DONTWAIT; MSG_PEEK, for instance, is an error.
package xnet
