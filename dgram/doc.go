// Package dgram sends and receives datagrams in batches, with no allocation in
// either direction, and lets the kernel cut (GSO) and join (GRO) them.
//
// It stands beside a *net.UDPConn or a *net.UnixConn that the caller opened and
// goes on owning: deadlines, Close and socket options stay where they are, and
// a blocked call wakes up for them as any other call on that connection does.
//
//	c, err := dgram.New(udp, dgram.Config{})
//	ms := dgram.MakeMessages(16)
//	for {
//		n, err := c.ReadBatch(ms)
//		if err != nil {
//			return err
//		}
//		for i := range ms[:n] {
//			for datagram := range ms[i].Datagrams() {
//				…
//			}
//		}
//	}
//
// # The rude surprise
//
// Where the kernel can, a [Conn] receives super-packets: up to 64 datagrams of
// one sender in one buffer, [Message.Segment] bytes each, only the last may be
// shorter. So every buffer given to ReadBatch must hold [MaxSize] bytes, and
// reading from the same socket in any other way is no longer safe, since such
// a read would take several datagrams for one. [Config.NoGRO] gives that up.
//
// # Sending
//
// WriteBatch takes datagrams as they come. Neighbours with one destination and
// one size leave as a single run that the kernel, or the network card, cuts
// again; nothing is copied for it. A caller that has a run already says so with
// Message.Segment.
//
// A route may refuse runs: its device computes no checksums, or IPsec stands in
// between. The run is then sent again as single datagrams, the destination is
// remembered for some minutes, and [Stats.Fallbacks] counts it. There are also
// kernels that damage runs and do not say so (Linux 7.0 to 7.1.4, and one 6.17
// of a distribution, by reports to Tailscale): [Config.NoGSO] is the way out.
//
// # Other systems
//
// Without the kernel's help, as on systems other than Linux, the same calls
// work one datagram at a time; [Conn.Mode] tells what is in use.
package dgram
