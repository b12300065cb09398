package clienthello_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/penstock/penstock/clienthello"
	"github.com/penstock/penstock/splice"
)

// Parse tells from the first bytes which protocol a client speaks.
func ExampleParse() {
	for _, first := range []string{"\x16\x03\x01\x02\x00\x01", "GET / HTTP/1.1\r\n", "\x16\x03\x01\x00\x00"} {
		hello, err := clienthello.Parse([]byte(first))
		switch {
		case errors.Is(err, clienthello.ErrIncomplete):
			fmt.Println("read more, and call Parse with all of it")
		case errors.Is(err, clienthello.ErrNotTLS):
			fmt.Println("another protocol")
		case errors.Is(err, clienthello.ErrMalformed):
			fmt.Println("refuse:", err)
		default:
			fmt.Println("a client for", hello.ServerName)
		}
	}
	// Output:
	// read more, and call Parse with all of it
	// another protocol
	// refuse: malformed ClientHello: a record has no handshake bytes, or more than 16384
}

// A relay connects each client to the server that the client names, without terminating
// TLS.
func ExamplePeek() {
	// The server: it records what it receives, which is the client's side of TLS.
	upstream, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer upstream.Close()
	servers := map[string]string{"www.example.org": upstream.Addr().String()}

	serve := func(client net.Conn) {
		defer client.Close()
		client.SetReadDeadline(time.Now().Add(10 * time.Second))
		conn, hello, err := clienthello.Peek(client)
		if err != nil {
			fmt.Println(err)
			return
		}
		client.SetReadDeadline(time.Time{})

		server, err := net.Dial("tcp", servers[hello.ServerName])
		if err != nil {
			fmt.Println(err)
			return
		}
		defer server.Close()
		fmt.Println("to", hello.ServerName)
		splice.Relay(conn, server) // sends what Peek has read first
	}

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer listener.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		if client, err := listener.Accept(); err == nil {
			serve(client)
		}
	}()
	go func() { // a client
		c, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			return
		}
		defer c.Close()
		tls.Client(c, &tls.Config{ServerName: "www.example.org"}).Handshake()
	}()

	c, err := upstream.Accept()
	if err != nil {
		fmt.Println(err)
		return
	}
	_, hello, err := clienthello.Peek(c)
	fmt.Println("a client of", hello.ServerName, err)
	io.WriteString(c, "not TLS, which ends the client's handshake")
	c.Close()
	<-done
	// Output:
	// to www.example.org
	// a client of www.example.org <nil>
}
