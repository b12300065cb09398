package xnet_test

import (
	"fmt"
	"net"
	"time"

	"golang.org/x/net/ipv4"

	"github.com/penstock/penstock/dgram"
	"github.com/penstock/penstock/xnet"
)

// An echo server written for ipv4.PacketConn. Only the call that makes the connection is
// different.
func Example() {
	udp, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		fmt.Println(err)
		return
	}
	conn, err := xnet.New(udp, dgram.Config{}) // was ipv4.NewPacketConn(udp)
	if err != nil {
		fmt.Println(err)
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		ms := make([]ipv4.Message, 32)
		for i := range ms {
			ms[i].Buffers = [][]byte{make([]byte, 1500)}
		}
		for {
			n, err := conn.ReadBatch(ms, 0)
			if err != nil {
				return
			}
			for i := range ms[:n] {
				ms[i].Buffers[0] = ms[i].Buffers[0][:ms[i].N]
			}
			for at := 0; at < n; at++ { // a client that cannot be reached does not stop the others
				sent, _ := conn.WriteBatch(ms[at:n], 0)
				at += sent
			}
			for i := range ms[:n] {
				ms[i].Buffers[0] = ms[i].Buffers[0][:1500]
			}
		}
	}()

	client, err := net.Dial("udp4", conn.LocalAddr().String())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	client.SetDeadline(time.Now().Add(time.Minute))
	for _, text := range []string{"one", "two"} {
		client.Write([]byte(text))
		answer := make([]byte, 100)
		n, err := client.Read(answer)
		fmt.Printf("%s %v\n", answer[:n], err)
	}
	conn.Close()
	<-done
	// Output:
	// one <nil>
	// two <nil>
}
