// Package segment plans GSO runs and splits GRO super-packets.
//
// A run is one buffer, or several neighbours, that leaves in one system call
// and that the kernel cuts into datagrams: all have the same size, only the
// last may be shorter. A super-packet is the same thing on the way in.
//
// Everything here is arithmetic on lengths, and the memory of which destinations
// refuse runs. No payload is touched and no system call made, so that dgram and
// relay plan alike and a test can try every case.
//
// The rules are the kernel's: udp_send_skb in net/ipv4/udp.c and
// tools/testing/selftests/net/udpgso.c, Linux 6.18.
package segment

import "iter"

// What the kernel allows in one run.
const (
	// MaxCount is the most datagrams in a run that every kernel since 5.16
	// takes. UDP_MAX_SEGMENTS has been 128 since 6.9, but receivers coalesce at
	// most 64 (UDP_GRO_CNT_MAX), so longer runs would be cut there anyway.
	MaxCount = 64

	// MaxCountOld is MaxCount before 5.16, where the kernel counted the run's
	// 8-byte UDP header as payload.
	MaxCountOld = 63

	// MaxBytes4 is the largest payload over IPv4: 65,535 less the IP and UDP headers.
	MaxBytes4 = 65535 - 20 - 8

	// MaxBytes6 is the largest payload over IPv6, whose length field does not
	// count the IP header.
	MaxBytes6 = 65535 - 8
)

// Limit is what one run may hold.
type Limit struct {
	Count int // most datagrams
	Bytes int // most bytes of payload
}

// Count is the number of datagrams that a message of n bytes stands for when
// it is cut every segment bytes. A segment of 0 or less means no cut, and an
// empty message is one empty datagram.
func Count(n, segment int) int {
	if segment <= 0 || n <= segment {
		return 1
	}
	return (n + segment - 1) / segment
}

// Cut splits off the first datagram of b. The rest is nil after the last one.
// Both parts share b's memory; the first cannot be appended into the rest.
func Cut(b []byte, segment int) (first, rest []byte) {
	if segment <= 0 || len(b) <= segment {
		return b, nil
	}
	return b[:segment:segment], b[segment:]
}

// All yields the datagrams of b in order, at least one. They share b's memory.
func All(b []byte, segment int) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for rest := b; ; {
			var first []byte
			first, rest = Cut(rest, segment)
			if !yield(first) || rest == nil {
				return
			}
		}
	}
}
