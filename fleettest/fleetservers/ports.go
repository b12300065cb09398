package main

import (
	"errors"
	"math/rand/v2"
	"net"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Ports are chosen below the range that Linux gives to outgoing connections (ip_local_port_range begins
// at 32768), so that nobody takes the port of a server while it is being restarted. Tests give ports that
// they have reserved instead (package testnet), so that two of them never choose the same one.
const firstPort, lastPort = 20000, 32000

const portsUsage = "`ports` for URLs with port 0, with commas between: clients, etcd's peers; empty: any free ones"

// A portSource has the ports of URLs with port 0.
type portSource struct {
	given string // those that are left
}

// url returns an URL whose port is not 0.
func (s *portSource) url(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Port() != "0" {
		return u, err
	}
	if s.given != "" {
		var port string
		port, s.given, _ = strings.Cut(s.given, ",")
		u.Host = net.JoinHostPort(u.Hostname(), port)
		return u, nil
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
// another server may have taken the port that was found just now, or look at the moment whether it is free.
func whileInUse(listen func() error) (err error) {
	for range 100 {
		if err = listen(); !errors.Is(err, syscall.EADDRINUSE) {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
	return err
}
