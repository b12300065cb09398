// Package segment plans GSO runs and splits GRO super-packets.
//
// A run is one buffer, or several adjacent ones, that is sent with one system call and that the
// kernel cuts into datagrams. All datagrams have the same size, except that the last may be
// shorter. A super-packet is the same thing on the receiving side.
//
// The package computes with lengths, and remembers which destinations refuse runs. It does not
// touch payloads or make system calls, so that dgram and relay plan alike and tests can try every
// case.
//
// The rules are the kernel's: udp_send_skb in net/ipv4/udp.c and
// tools/testing/selftests/net/udpgso.c, Linux 6.18.
package segment

import "iter"

// What the kernel allows in one run.
const (
	// MaxCount is the maximum number of datagrams in a run that every kernel since 5.16 accepts.
	// UDP_MAX_SEGMENTS has been 128 since 6.9, but receivers coalesce at most 64 (UDP_GRO_CNT_MAX),
	// so longer runs would be cut there anyway.
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

// Limit is the maximum size of a run.
type Limit struct {
	Count int // number of datagrams
	Bytes int // bytes of payload
}

// Count returns the number of datagrams in a message of n bytes that is cut every segment bytes. A
// segment of 0 or less means no cut, and an empty message is one empty datagram.
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
