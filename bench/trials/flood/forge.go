//go:build linux

package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/net/ipv4"

	"github.com/penstock/penstock/bench/internal/load"
	"github.com/penstock/penstock/dgram"
)

// A kind is where the datagrams of a flood come from.
type kind struct {
	name, about string
	source      func(r *rand.Rand) uint32
}

// Old sessions are in oldNet, one /24 each four; new clients of known networks in the same /24s, those
// of quiet networks each in a /24 of quietNet.
const (
	oldNet   = 10<<24 | 1<<16
	quietNet = 10<<24 | 64<<16
	oneNet   = 203<<24 | 113<<8
	manyNet  = 100 << 24
	perNet   = 4
)

var kinds = []kind{
	{"all", "any address of IPv4", func(r *rand.Rand) uint32 {
		for {
			if ip := r.Uint32(); ip>>24 != 10 && ip>>24 != 127 && ip>>24 != 0 && ip>>24 < 224 && ip>>8 != 192<<16|2 {
				return ip
			}
		}
	}},
	{"many", "10,000 networks", func(r *rand.Rand) uint32 { return manyNet + r.Uint32N(10_000)<<8 + r.Uint32N(256) }},
	{"one", "one network", func(r *rand.Rand) uint32 { return oneNet + r.Uint32N(256) }},
	{"known", "the networks of the old sessions", func(r *rand.Rand) uint32 { return oldNet + r.Uint32N(50)<<8 + 128 + r.Uint32N(64) }},
}

func kindNames() (names []string) {
	for _, k := range kinds {
		names = append(names, k.name)
	}
	return names
}

// A forgery is what the child that forges is told.
type forgery struct {
	Kind       string
	Rate, Size int
	Initials   bool
	To         netip.AddrPort
}

// forge sends datagrams from forged addresses until its standard input ends, and prints how many it has sent.
func forge(f *forgery) error {
	var source func(r *rand.Rand) uint32
	for _, k := range kinds {
		if k.name == f.Kind {
			source = k.source
		}
	}
	rate, size, to := f.Rate, f.Size, f.To
	c, err := net.ListenPacket("ip4:udp", "0.0.0.0")
	if err != nil {
		return err
	}
	raw, err := ipv4.NewRawConn(c)
	if err != nil {
		return err
	}
	var over atomic.Bool
	go func() {
		io.Copy(io.Discard, os.Stdin)
		over.Store(true)
	}()
	r := rand.New(rand.NewPCG(uint64(os.Getpid()), uint64(time.Now().UnixNano())))
	const most = 256
	var payloads [][]byte // empty: whatever it is
	if f.Initials {
		size = load.InitialSize
		if payloads, err = load.Initials(r, 16*most, true); err != nil {
			return err
		}
	}
	ms := make([]ipv4.Message, most)
	dst := &net.IPAddr{IP: to.Addr().AsSlice()}
	for i := range ms {
		b := make([]byte, 28+size)
		b[0], b[8], b[9] = 0x45, 64, 17
		a := to.Addr().As4()
		copy(b[16:], a[:])
		binary.BigEndian.PutUint16(b[22:], to.Port())
		binary.BigEndian.PutUint16(b[24:], uint16(8+size))
		ms[i] = ipv4.Message{Buffers: [][]byte{b}, Addr: dst}
	}
	sent, start := 0, time.Now()
	for !over.Load() {
		due := int(time.Since(start).Seconds()*float64(rate)) - sent
		if due > 20*most { // it had no CPU for that long: what was not sent then is not sent at all
			start = start.Add(time.Duration(due-20*most) * time.Second / time.Duration(rate))
			continue
		}
		if due <= 0 {
			time.Sleep(500 * time.Microsecond)
			continue
		}
		n := min(due, most)
		for i := range n {
			b := ms[i].Buffers[0]
			binary.BigEndian.PutUint32(b[12:], source(r))
			binary.BigEndian.PutUint16(b[20:], uint16(1024+r.IntN(64000)))
			if f.Initials {
				copy(b[28:], payloads[r.IntN(len(payloads))])
			} else {
				binary.BigEndian.PutUint64(b[28:], r.Uint64()&^(1<<63)) // not of a client
			}
		}
		for rest := ms[:n]; len(rest) > 0; {
			k, err := raw.WriteBatch(rest, 0)
			if err != nil && k <= 0 {
				return err
			}
			rest = rest[k:]
		}
		sent += n
	}
	_, err = fmt.Println(sent)
	return err
}

// echo is the upstream, in its own process.
func echo(address *string) error {
	ua, err := net.ResolveUDPAddr("udp4", *address)
	if err != nil {
		return err
	}
	c, err := net.ListenUDP("udp4", ua)
	if err != nil {
		return err
	}
	d, err := dgram.New(c, dgram.Config{})
	if err != nil {
		return err
	}
	if _, err := d.SetReadBuffer(16 << 20); err != nil {
		return err
	}
	fmt.Println("ready")
	for ms := dgram.MakeMessages(64); ; {
		for i := range ms {
			ms[i].Buf = ms[i].Buf[:dgram.MaxSize]
		}
		n, err := d.ReadBatch(ms)
		if errors.Is(err, net.ErrClosed) {
			return err
		}
		for i := range ms[:n] {
			ms[i].Buf = ms[i].Buf[:ms[i].N]
			ms[i].Local = netip.Addr{}
		}
		for rest := ms[:n]; len(rest) > 0; {
			k, err := d.WriteBatch(rest)
			if err != nil {
				k++ // a flow that is gone
			}
			rest = rest[k:]
		}
	}
}
