//go:build linux

package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/penstock/penstock/bench/internal/echo"
)

// What a client sends first decides what the upstream does.
const (
	countWord = "COUNT\n" // counts what follows up to the end of the stream, and then answers
	firstWord = "FIRST\n" // answers and ends its direction, and then counts what follows
)

// An upstream talks plain TCP. It answers requests of HTTP, and sends everything else back.
type upstream struct {
	net.Listener
	counted chan int64 // what followed firstWord, of each such connection
}

func newUpstream() (*upstream, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	u := &upstream{l, make(chan int64, 16)}
	go echo.Serve(l, func(c net.Conn) { u.serve(c.(*net.TCPConn)) })
	return u, nil
}

func (u *upstream) serve(c *net.TCPConn) {
	in := bufio.NewReaderSize(c, 64<<10)
	head, err := in.Peek(4)
	switch {
	case string(head) == countWord[:4]:
		n, err := io.Copy(io.Discard, in)
		if err == nil {
			fmt.Fprintf(c, "%d bytes\n", n-int64(len(countWord)))
		}
	case string(head) == firstWord[:4]:
		io.WriteString(c, "first\n")
		c.CloseWrite()
		n, _ := io.Copy(io.Discard, in)
		u.counted <- n - int64(len(firstWord))
	case err == nil && (string(head) == "GET " || string(head) == "HEAD"):
		answer(c, in)
	default: // also what is shorter
		buf := make([]byte, 64<<10)
		for {
			n, err := in.Read(buf)
			if err != nil {
				return
			}
			if _, err := c.Write(buf[:n]); err != nil {
				return
			}
		}
	}
}

// answer answers each request: the tools for HTTPS want no more.
func answer(c net.Conn, in *bufio.Reader) {
	for {
		for blank := false; !blank; {
			line, err := in.ReadString('\n')
			if err != nil {
				return
			}
			blank = strings.TrimSpace(line) == ""
		}
		if _, err := io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 8\r\n\r\nanswered"); err != nil {
			return
		}
	}
}
