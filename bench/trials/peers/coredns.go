//go:build linux

package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/penstock/penstock/bench/internal/trial"
)

// coredns asks CoreDNS whom it sees, through listeners that send PROXY headers in each way that it reads.
func coredns(s *setup) error {
	if s.coredns == "" {
		return errors.New("give -coredns, or use make peers, which builds it")
	}
	var each, first string
	if err := trial.Ports(&each, &first); err != nil {
		return err
	}
	const block = ".:%s {\n bind 127.0.0.1\n proxyproto {\n  allow 127.0.0.1/32\n %s\n }\n whoami\n}\n"
	file, err := s.file("Corefile", block+block, each, "", first, "udp_session_tracking 1m")
	if err != nil {
		return err
	}
	server, err := s.begin("coredns", s.coredns, "-conf", file)
	if err != nil {
		return err
	}
	senders := []struct{ name, network, port, header string }{
		{"udp/datagrams=each", "udp", each, "v2"},
		{"udp/datagrams=first", "udp", first, "{version: 2, datagrams: first}"},
		{"tcp/version=v1", "tcp", each, "v1"},
		{"tcp/version=v2", "tcp", each, "v2"},
	}
	config, groups, relays := "listeners:\n", "groups:\n", make([]string, len(senders))
	for i, c := range senders {
		if err := trial.Ports(&relays[i]); err != nil {
			return err
		}
		config += fmt.Sprintf("  l%d: {listen: \"%s://127.0.0.1:%s\", to: g%d}\n", i, c.network, relays[i], i)
		groups += fmt.Sprintf("  g%d: {members: [\"%s://127.0.0.1:%s\"], proxy-protocol: %s}\n", i, c.network, c.port, c.header)
	}
	if _, err := s.daemon("%s%s", config, groups); err != nil {
		return err
	}
	for i, c := range senders {
		asked := 0
		err := until(c.name, server, func() error {
			asked = 0
			client, err := dialFrom(c.network, "127.0.0.77", relays[i])
			if err != nil {
				return err
			}
			defer client.Close()
			for range 3 {
				if err := whoami(client, c.network == "tcp"); err != nil {
					return err
				}
				asked++
			}
			return nil
		})
		if err != nil {
			return err
		}
		s.report(c.name, asked, "answers-name-the-client")
	}
	return nil
}

// dialFrom connects to a port of this host from an address.
func dialFrom(network, from, port string) (net.Conn, error) {
	var local net.Addr = &net.TCPAddr{IP: net.ParseIP(from)}
	if network == "udp" {
		local = &net.UDPAddr{IP: net.ParseIP(from)}
	}
	d := net.Dialer{LocalAddr: local, Timeout: time.Second}
	return d.Dial(network, "127.0.0.1:"+port)
}

// whoami asks one question, and returns an error unless the answer has the client's address and port.
func whoami(client net.Conn, stream bool) error {
	q := dnsmessage.Message{Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName("example.org."), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}}}
	text, err := q.Pack()
	if err != nil {
		return err
	}
	if stream {
		text = append([]byte{byte(len(text) >> 8), byte(len(text))}, text...)
	}
	client.SetDeadline(time.Now().Add(time.Second))
	if _, err := client.Write(text); err != nil {
		return err
	}
	b := make([]byte, 4096)
	n, err := client.Read(b)
	if err != nil {
		return err
	}
	b = b[:n]
	if stream {
		b = b[min(2, n):]
	}
	var answer dnsmessage.Message
	if err := answer.Unpack(b); err != nil {
		return err
	}
	var seen netip.AddrPort
	for _, r := range answer.Additionals {
		switch r := r.Body.(type) {
		case *dnsmessage.AResource:
			seen = netip.AddrPortFrom(netip.AddrFrom4(r.A), seen.Port())
		case *dnsmessage.SRVResource:
			seen = netip.AddrPortFrom(seen.Addr(), r.Port)
		}
	}
	if seen.String() != client.LocalAddr().String() {
		return fmt.Errorf("CoreDNS sees %v instead of %v", seen, client.LocalAddr())
	}
	return nil
}
