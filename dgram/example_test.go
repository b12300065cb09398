package dgram_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"time"

	"github.com/penstock/penstock/dgram"
)

// An echo server. Messages are sent back as they were received, super-packets included,
// so 64 datagrams may need two system calls. With Local, replies are sent from the
// address that the client wrote to.
func Example_echoServer() {
	udp, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		log.Fatal(err)
	}
	go echo(udp)

	client, err := net.Dial("udp", udp.LocalAddr().String())
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	client.SetDeadline(time.Now().Add(time.Minute))
	client.Write([]byte("hello"))
	answer := make([]byte, 100)
	n, err := client.Read(answer)
	fmt.Printf("%s %v\n", answer[:n], err)
	udp.Close()
	// Output: hello <nil>
}

func echo(udp *net.UDPConn) error {
	c, err := dgram.New(udp, dgram.Config{Local: true})
	if err != nil {
		return err
	}
	in, out := dgram.MakeMessages(16), make([]dgram.Message, 16)
	for {
		n, err := c.ReadBatch(in)
		if err != nil {
			return err
		}
		for i, m := range in[:n] {
			m.Buf = m.Buf[:m.N]
			out[i] = m
		}
		for at := 0; at < n; at++ { // a client that cannot be reached does not stop the others
			sent, _ := c.WriteBatch(out[at:n])
			at += sent
		}
	}
}

// A message may be a run: here the kernel splits each buffer into 54 datagrams of 1,200
// bytes, and sends two such messages per system call.
func ExampleConn_WriteBatch_flood() {
	sink, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		log.Fatal(err)
	}
	defer sink.Close()
	udp, err := net.DialUDP("udp", nil, sink.LocalAddr().(*net.UDPAddr))
	if err != nil {
		log.Fatal(err)
	}
	defer udp.Close()
	c, err := dgram.New(udp, dgram.Config{})
	if err != nil {
		log.Fatal(err)
	}

	payload := make([]byte, 54*1200)
	ms := []dgram.Message{{Buf: payload, Segment: 1200}, {Buf: payload, Segment: 1200}}
	for range 10 {
		if _, err := c.WriteBatch(ms); err != nil {
			log.Fatal(err)
		}
	}
	s := c.Stats()
	fmt.Println(s.WriteDatagrams, "datagrams,", s.WriteBytes, "bytes")
	// Output: 1080 datagrams, 1296000 bytes
}

// WriteBatch sends consecutive messages of one size to one address as a run; the caller
// need not set Segment.
func ExampleConn_WriteBatch() {
	udp, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		log.Fatal(err)
	}
	defer udp.Close()
	c, err := dgram.New(udp, dgram.Config{})
	if err != nil {
		log.Fatal(err)
	}
	to := udp.LocalAddr().(*net.UDPAddr).AddrPort()
	n, err := c.WriteBatch([]dgram.Message{
		{Buf: []byte("one"), Addr: to},
		{Buf: []byte("two"), Addr: to},
		{Buf: []byte("six"), Addr: to},
	})
	fmt.Println(n, err)

	in := dgram.MakeMessages(4)
	for left := n; left > 0; {
		n, err := c.ReadBatch(in)
		if err != nil {
			log.Fatal(err)
		}
		for i := range in[:n] {
			for datagram := range in[i].Datagrams() {
				fmt.Printf("%s\n", datagram)
				left--
			}
		}
	}
	// Output:
	// 3 <nil>
	// one
	// two
	// six
}

// One socket for each of two CPUs, on one port.
func ExampleListenReusePort() {
	conns, err := dgram.ListenReusePort(context.Background(), "udp", "127.0.0.1:0", 2)
	if errors.Is(err, errors.ErrUnsupported) {
		conns, err = dgram.ListenReusePort(context.Background(), "udp", "127.0.0.1:0", 1)
	}
	if err != nil {
		log.Fatal(err)
	}
	for _, udp := range conns {
		go echo(udp)
	}
	for _, udp := range conns {
		udp.Close()
	}
}
