//go:build linux

package peer

import (
	"io"
	"net"
	"runtime"
	"sync"
)

// GoCopy is the relay that a Go programmer would write first: one goroutine per direction with
// io.Copy, which splices between TCP connections. It runs Go code on the given number of threads,
// and serves until its listener fails.
func GoCopy(threads int, listen, upstream string) error {
	runtime.GOMAXPROCS(threads)
	ln, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	for {
		c, err := ln.Accept()
		if err != nil {
			return err
		}
		go carry(c.(*net.TCPConn), upstream)
	}
}

func carry(client *net.TCPConn, upstream string) {
	defer client.Close()
	c, err := net.Dial("tcp", upstream)
	if err != nil {
		return
	}
	server := c.(*net.TCPConn)
	defer server.Close()
	var wg sync.WaitGroup
	wg.Go(func() { copyDirection(server, client) })
	copyDirection(client, server)
	wg.Wait()
}

// copyDirection passes the half-close on. After an error both connections are useless, and closing them
// ends the other direction.
func copyDirection(dst, src *net.TCPConn) {
	if _, err := io.Copy(dst, src); err != nil {
		dst.Close()
		src.Close()
		return
	}
	dst.CloseWrite()
}
