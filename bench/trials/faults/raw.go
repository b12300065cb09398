//go:build linux

package main

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"time"

	"golang.org/x/sys/unix"
)

// A forger sends IP packets with any address as their source.
type forger struct {
	fd int
	to unix.SockaddrInet4
}

func newForger() (*forger, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		return nil, fmt.Errorf("raw socket: %w", err)
	}
	unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, 4<<20)
	return &forger{fd: fd, to: unix.SockaddrInet4{Addr: relayAddrPort(0).Addr().As4()}}, nil
}

// flood sends packets at a rate, from random addresses of 10.128.0.0/9, and returns how many were sent.
func (f *forger) flood(rate int, d time.Duration, protocol byte, body []byte) (sent int) {
	p := make([]byte, 20+len(body))
	p[0], p[8], p[9] = 0x45, 64, protocol
	copy(p[16:], f.to.Addr[:])
	copy(p[20:], body)
	start := time.Now()
	for time.Since(start) < d {
		due := int(time.Since(start).Seconds() * float64(rate))
		if due <= sent {
			time.Sleep(500 * time.Microsecond)
			continue
		}
		for range min(due-sent, 500) {
			binary.BigEndian.PutUint32(p[12:], 10<<24|1<<23|rand.Uint32N(1<<23))
			binary.BigEndian.PutUint16(p[20:], uint16(1024+rand.IntN(60000)))
			if protocol == unix.IPPROTO_TCP {
				binary.BigEndian.PutUint32(p[24:], rand.Uint32())
				checksum(p)
			}
			unix.Sendto(f.fd, p, 0, &f.to)
			sent++
		}
	}
	return sent
}

// syn is the header of a TCP segment that asks for a connection.
func syn(port int) []byte {
	b := make([]byte, 20)
	binary.BigEndian.PutUint16(b[2:], uint16(port))
	b[12], b[13] = 5<<4, 2
	binary.BigEndian.PutUint16(b[14:], 65535)
	return b
}

// datagram is a UDP datagram without a checksum, which IPv4 allows.
func datagram(port int, payload []byte) []byte {
	b := make([]byte, 8, 8+len(payload))
	binary.BigEndian.PutUint16(b[2:], uint16(port))
	binary.BigEndian.PutUint16(b[4:], uint16(8+len(payload)))
	return append(b, payload...)
}

// checksum sets the checksum of a TCP segment (RFC 9293, 3.1).
func checksum(p []byte) {
	p[36], p[37] = 0, 0
	sum := uint32(unix.IPPROTO_TCP) + uint32(len(p)-20)
	for i := 12; i+1 < len(p); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(p[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(p[36:], ^uint16(sum))
}

func (f *forger) close() { unix.Close(f.fd) }
