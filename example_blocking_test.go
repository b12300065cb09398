package penstock_test

import (
	"fmt"
	"io"
	"net"
	"sync"

	"github.com/penstock/penstock/splice"
)

// This is the same for blocking code, with a goroutine per client: package splice moves the bytes,
// and package net does everything else.
func Example_blocking() {
	upstream, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}

	var flows sync.WaitGroup
	accept := func(l net.Listener, serve func(net.Conn)) {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			flows.Go(func() {
				defer c.Close()
				serve(c)
			})
		}
	}
	flows.Go(func() { accept(upstream, func(c net.Conn) { splice.Copy(c, c) }) })
	flows.Go(func() {
		accept(listener, func(client net.Conn) {
			server, err := net.Dial("tcp", upstream.Addr().String())
			if err != nil {
				fmt.Println(err)
				return
			}
			defer server.Close()
			r, err := splice.Relay(client, server)
			fmt.Println(r.Outcome, r.Down.Written, "bytes", err)
		})
	})

	client, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		fmt.Println(err)
		return
	}
	io.WriteString(client, "hello")
	client.(*net.TCPConn).CloseWrite()
	answer, err := io.ReadAll(client)
	client.Close()
	listener.Close()
	upstream.Close()
	flows.Wait()
	fmt.Printf("%s %v\n", answer, err)
	// Output:
	// end 5 bytes <nil>
	// hello <nil>
}
