//go:build linux

package origin

import (
	"fmt"
	"net"
	"testing"

	"golang.org/x/net/ipv4"

	"github.com/penstock/penstock/dgram"
	"github.com/penstock/penstock/xnet"
)

var payload = []byte("HELLO-R-U-THERE")

// room is the size of x/net's receive buffer, and of its buffer for control messages.
const room = 128

// step sends n datagrams to the socket itself with one call, and receives with one call, as x/net's
// benchmark does.
type step func() (received int, err error)

// impls prepare an implementation on a socket, for n datagrams per call.
var impls = []struct {
	name string
	open func(c *net.UDPConn, n int) (step, error)
}{
	{"xnet", func(c *net.UDPConn, n int) (step, error) {
		x, err := xnet.New(c, dgram.Config{})
		if err != nil {
			return nil, err
		}
		out, in := make([]ipv4.Message, n), make([]ipv4.Message, n)
		for i := range n {
			out[i] = ipv4.Message{Buffers: [][]byte{payload}, Addr: c.LocalAddr()}
			in[i] = ipv4.Message{Buffers: [][]byte{make([]byte, room)}, OOB: make([]byte, room)}
		}
		return func() (int, error) {
			if _, err := x.WriteBatch(out, 0); err != nil {
				return 0, err
			}
			return x.ReadBatch(in, 0)
		}, nil
	}},
	{"dgram", func(c *net.UDPConn, n int) (step, error) { return open(c, n, dgram.Config{}) }},
	{"dgram-plain", func(c *net.UDPConn, n int) (step, error) {
		return open(c, n, dgram.Config{NoGSO: true, NoGRO: true})
	}},
}

func open(c *net.UDPConn, n int, cfg dgram.Config) (step, error) {
	d, err := dgram.New(c, cfg)
	if err != nil {
		return nil, err
	}
	out := make([]dgram.Message, n)
	for i := range out {
		out[i] = dgram.Message{Buf: payload, Addr: c.LocalAddr().(*net.UDPAddr).AddrPort()}
	}
	// Super-packets of up to 64 datagrams need fewer, longer buffers.
	var in []dgram.Message
	if d.Mode().GRO {
		in = dgram.MakeMessages(min(n, 16))
	} else {
		in = make([]dgram.Message, n)
		for i := range in {
			in[i].Buf = make([]byte, room)
		}
	}
	for i := range in {
		in[i].Control = make([]byte, 0, room)
	}
	return func() (received int, err error) {
		if _, err := d.WriteBatch(out); err != nil {
			return 0, err
		}
		k, err := d.ReadBatch(in)
		for i := range in[:k] {
			for range in[i].Datagrams() {
				received++
			}
		}
		return received, err
	}, nil
}

// The receive buffer has the system's default size, as in x/net's benchmark: 512 single datagrams
// do not fit into the usual one, and lost datagrams cost no read. For that reason, the number
// received is a metric.
func BenchmarkUDP(b *testing.B) {
	for _, impl := range impls {
		for n := 1; n <= 512; n *= 2 {
			run := func(calls, each int) func(b *testing.B) {
				return func(b *testing.B) {
					c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
					if err != nil {
						b.Fatal(err)
					}
					defer c.Close()
					once, err := impl.open(c, each)
					if err != nil {
						b.Fatal(err)
					}
					b.ReportAllocs()
					received := 0
					for b.Loop() {
						for range calls {
							k, err := once()
							if err != nil {
								b.Fatal(err)
							}
							received += k
						}
					}
					b.ReportMetric(float64(received)/float64(b.N), "datagrams/op")
				}
			}
			b.Run(fmt.Sprintf("impl=%s/Iter-%d", impl.name, n), run(n, 1))
			b.Run(fmt.Sprintf("impl=%s/Batch-%d", impl.name, n), run(1, n))
		}
	}
}
