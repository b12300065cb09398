package main

import (
	"errors"
	"math/rand/v2"
	"net"
	"net/url"
	"strconv"
	"syscall"
	"time"
)

// Ports are chosen below the range that Linux gives to outgoing connections (ip_local_port_range begins
// at 32768), so that nobody takes the port of a server while it is being restarted.
const firstPort, lastPort = 20000, 32000

// freePort returns an URL whose port is not 0.
func freePort(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Port() != "0" {
		return u, err
	}
	for range 100 {
		u.Host = net.JoinHostPort(u.Hostname(), strconv.Itoa(firstPort+rand.N(lastPort-firstPort)))
		if l, err := net.Listen("tcp", u.Host); err == nil {
			return u, l.Close()
		}
	}
	return nil, errors.New("no free port")
}

// whileInUse calls listen until it returns another error than that an address is in use, for at most 10 seconds:
// another server may have taken the port that freePort has just found, or look at the moment whether it is free.
func whileInUse(listen func() error) (err error) {
	for range 100 {
		if err = listen(); !errors.Is(err, syscall.EADDRINUSE) {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
	return err
}
