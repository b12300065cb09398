// Package dgram sends and receives datagrams in batches, without allocating. Where the
// kernel supports it, one system call moves many datagrams (recvmmsg, sendmmsg), and the
// kernel splits runs of datagrams (GSO) and merges them (GRO).
//
// A [Conn] uses a *net.UDPConn or *net.UnixConn that the caller has opened and still
// owns. Deadlines, Close and socket options are those of that connection.
//
//	c, err := dgram.New(udp, dgram.Config{})
//	if err != nil {
//		return err
//	}
//	ms := dgram.MakeMessages(16)
//	for {
//		n, err := c.ReadBatch(ms)
//		if err != nil {
//			return err
//		}
//		for i := range ms[:n] {
//			for datagram := range ms[i].Datagrams() {
//				handle(ms[i].Addr, datagram)
//			}
//		}
//	}
//
// # Receiving
//
// With GRO, a message may be a super-packet: up to 64 datagrams of one sender in one
// buffer, each of [Message.Segment] bytes except for the last, which may be shorter. So
// every buffer given to ReadBatch must have [MaxSize] bytes, and nothing else may read
// from the socket, because such a read would take several datagrams for one. To avoid
// both, set [Config.NoGRO].
//
// # Sending
//
// WriteBatch sends consecutive messages with the same destination and size as one run,
// which the kernel or the network card splits; it copies nothing. A caller that already
// has a run in one buffer sets Message.Segment.
//
// A route may refuse runs, for instance because its device does not compute checksums.
// WriteBatch then sends the run again as single datagrams, remembers the destination for
// some minutes, and counts it in [Stats.Fallbacks]. Some kernels corrupt runs without an
// error (Linux 7.0 to 7.1.4, and one 6.17 of a distribution, by reports to Tailscale);
// set [Config.NoGSO] there.
//
// # Other systems
//
// On systems other than Linux the same calls work with one datagram at a time.
// [Conn.Mode] returns what is in use.
package dgram
