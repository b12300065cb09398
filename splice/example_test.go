package splice_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"time"

	"github.com/penstock/penstock/splice"
)

// A TCP proxy. It ends a pair of connections when no byte has moved for five minutes, and
// prints how much was relayed.
func ExampleConfig_Relay() {
	server, err := echoServer()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer l.Close()

	done := make(chan struct{})
	serve := func(client net.Conn) {
		defer close(done)
		defer client.Close()
		upstream, err := net.Dial("tcp", server.Addr().String())
		if err != nil {
			fmt.Println(err)
			return
		}
		defer upstream.Close()

		cfg := splice.Config{Idle: 5 * time.Minute}
		r, err := cfg.Relay(client, upstream)
		fmt.Println(r.Outcome, r.Up.Written, "bytes up,", r.Down.Written, "bytes down,", err)
	}
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			go serve(client)
		}
	}()

	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	io.WriteString(client, "hello")
	client.(*net.TCPConn).CloseWrite()
	io.Copy(io.Discard, client)
	<-done
	// Output:
	// end 5 bytes up, 5 bytes down, <nil>
}

// Copy uses the socket inside a connection of which a bufio.Reader has read the head, here
// to choose where to connect to, and first delivers what the bufio.Reader has.
func ExampleNewConn() {
	client, accepted := connected()
	upstream, server := connected()
	defer client.Close()
	defer server.Close()

	io.WriteString(client, "GET /index.html HTTP/1.1\r\n\r\n")
	client.(*net.TCPConn).CloseWrite()

	head := bufio.NewReader(accepted)
	method, err := head.Peek(3)
	fmt.Printf("%s, %v\n", method, err)

	conn := splice.NewConn(accepted, head)
	n, err := splice.Copy(upstream, conn)
	fmt.Println(n, err)
	conn.Close()
	upstream.Close()

	all, err := io.ReadAll(server)
	fmt.Printf("%q, %v\n", all, err)
	// Output:
	// GET, <nil>
	// 28 <nil>
	// "GET /index.html HTTP/1.1\r\n\r\n", <nil>
}

// Copy accepts the same readers and writers as io.Copy. A file is sent to a socket without
// a copy in user space, here with a limit.
func ExampleCopy() {
	file, err := os.CreateTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.Remove(file.Name())
	defer file.Close()
	io.WriteString(file, "header: the rest")
	file.Seek(0, io.SeekStart)

	conn, peer := connected()
	defer peer.Close()
	n, err := splice.Copy(conn, io.LimitReader(file, 6))
	fmt.Println(n, err)
	conn.Close()

	all, err := io.ReadAll(peer)
	fmt.Printf("%q, %v\n", all, err)
	// Output:
	// 6 <nil>
	// "header", <nil>
}

// A Config is shared by all pairs, and each has a Live of its own, which another
// goroutine may read at any time.
func ExampleConfig_RelayLive() {
	client, a := connected()
	b, server := connected()
	for _, c := range []net.Conn{client, a, b, server} {
		defer c.Close()
	}
	cfg := splice.Config{HalfClosed: time.Minute}
	var live splice.Live
	done := make(chan splice.Result)
	go func() {
		r, _ := cfg.RelayLive(context.Background(), a, b, &live)
		done <- r
	}()

	io.WriteString(client, "hello")
	io.ReadFull(server, make([]byte, 5))
	for live.Up().Written < 5 { // counted just after the server has them
		runtime.Gosched()
	}
	fmt.Println(live.Up().Written, live.Down().Written)
	client.Close()
	server.Close()
	fmt.Println((<-done).Outcome)
	// Output:
	// 5 0
	// end
}

// RelayContext returns when its context ends.
func ExampleRelayContext() {
	client, a := connected()
	b, server := connected()
	for _, c := range []net.Conn{client, a, b, server} {
		defer c.Close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	r, err := splice.RelayContext(ctx, a, b)
	fmt.Println(r.Outcome, errors.Is(err, context.DeadlineExceeded))
	// Output:
	// canceled true
}

// echoServer starts a server that returns what its clients send.
func echoServer() (net.Listener, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				splice.Copy(c, c)
			}()
		}
	}()
	return l, nil
}

// connected returns the two ends of a connection.
func connected() (a, b net.Conn) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	defer l.Close()
	if a, err = net.Dial("tcp", l.Addr().String()); err != nil {
		panic(err)
	}
	if b, err = l.Accept(); err != nil {
		panic(err)
	}
	return a, b
}
