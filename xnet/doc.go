// Package xnet is package dgram behind the batch calls of golang.org/x/net: a
// [Conn] has ReadBatch and WriteBatch on [ipv4.Message], which is the same type
// as ipv6.Message, and the methods of *net.UDPConn. Programs written for
// ipv4.PacketConn take it as it is, and so does quic-go:
//
//	udp, err := net.ListenUDP("udp", addr)
//	conn, err := xnet.New(udp, dgram.Config{})
//	tr := &quic.Transport{Conn: conn}
//
// Super-packets are received whole where the kernel can, and handed out
// datagram by datagram, with one copy: buffers may be as short as the longest
// datagram expected. That copy costs far less than a walk through the kernel
// for each datagram would. Without GRO nothing is copied.
//
// Differences from x/net: counts are never negative; received addresses are
// shared between messages and must not be changed; neighbours that are written
// to one destination may leave as one run; where super-packets arrive, MSG_PEEK
// and other flags of a read are refused, but for MSG_DONTWAIT.
package xnet
