package upstream

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/relay"
)

// A Control returns a function for net.Dialer that sets a group's interface and mark.
type Control func(*spec.Dial) func(network, address string, c syscall.RawConn) error

// maxAnswer bounds what a check reads.
const maxAnswer = 64 << 10

// localProxyHeader is the PROXY header that a check sends to a member that expects one, by
// version: the connection is the relay's own (the PROXY protocol, sections 2.1 and 2.2).
var localProxyHeader = [...]string{1: "PROXY UNKNOWN\r\n", 2: "\r\n\r\n\x00\r\nQUIT\n\x20\x00\x00\x00"}

// probe checks a member once, as configured by the group's Check. It returns nil if the member
// passes. ctx must have a deadline.
func probe(ctx context.Context, g *spec.Group, to relay.Addr, with Control) error {
	c := g.Check
	conn, err := dial(ctx, g, to, with)
	if err != nil {
		return err
	}
	defer conn.Close()
	// The end of ctx, including its deadline, ends reading and writing.
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if p := g.Dial.Proxy; c.Kind != "udp" && p > 0 && p < len(localProxyHeader) {
		if _, err := io.WriteString(conn, localProxyHeader[p]); err != nil {
			return err
		}
	}
	switch c.Kind {
	case "send-expect", "udp":
		return sendExpect(conn, c)
	case "http":
		return httpCheck(conn, c, to)
	}
	return nil
}

// dial connects as the group's flows do: from its source, over its interface, with its mark. It
// cannot connect from a client's address: then it does from an address of this host, or from the
// check's own source.
func dial(ctx context.Context, g *spec.Group, to relay.Addr, with Control) (net.Conn, error) {
	c := g.Check
	d := net.Dialer{}
	if with != nil {
		d.Control = with(&g.Dial)
	}
	if to.Path == "" {
		network, ip := "tcp", to.AddrPort
		if c.Kind == "udp" {
			network = "udp"
		}
		if c.Port != 0 {
			ip = netip.AddrPortFrom(ip.Addr(), c.Port)
		}
		sources := g.Dial.Source
		if c.Source.IsValid() {
			sources = []netip.Addr{c.Source}
		}
		for _, from := range sources {
			if from.Unmap().Is4() != ip.Addr().Unmap().Is4() {
				continue
			}
			d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0))
			if network == "udp" {
				d.LocalAddr = net.UDPAddrFromAddrPort(netip.AddrPortFrom(from, 0))
			}
			break
		}
		return d.DialContext(ctx, network, ip.String())
	}
	if c.Kind == "udp" {
		// The answer needs a destination address. Package net does not let the kernel
		// choose one (unix(7), autobind).
		d.LocalAddr = &net.UnixAddr{Net: "unixgram", Name: fmt.Sprintf("@penstock-check-%016x", rand.Uint64())}
		return d.DialContext(ctx, "unixgram", to.Path)
	}
	return d.DialContext(ctx, "unix", to.Path)
}

// sendExpect sends, and reads until the answer contains what is expected. Each datagram is an
// answer of its own.
func sendExpect(conn net.Conn, c *spec.Check) error {
	if _, err := conn.Write(c.Send); err != nil {
		return err
	}
	got, b := []byte(nil), make([]byte, maxAnswer)
	for len(got) < maxAnswer {
		n, err := conn.Read(b)
		if c.Kind == "udp" && n > 0 {
			got = got[:0] // a wrong answer is kept for the error
		}
		got = append(got, b[:max(n, 0)]...)
		switch {
		case n > 0 && bytes.Contains(got, c.Expect):
			return nil
		case err != nil && len(got) > 0:
			return fmt.Errorf("the answer is %.40q; expected: %.40q", got, c.Expect)
		case errors.Is(err, io.EOF), errors.Is(err, os.ErrDeadlineExceeded):
			return fmt.Errorf("no answer (%w); expected: %s", err, expected(c))
		case err != nil:
			return err
		}
	}
	return fmt.Errorf("the answer is more than %d bytes long; expected: %.40q", maxAnswer, c.Expect)
}

func expected(c *spec.Check) string {
	if len(c.Expect) == 0 {
		return "any"
	}
	return fmt.Sprintf("%.40q", c.Expect)
}

// httpCheck sends an HTTP/1.1 request and reads the head of the response.
func httpCheck(conn net.Conn, c *spec.Check, to relay.Addr) error {
	req := &http.Request{
		Method: c.Method, Host: c.Host, URL: &url.URL{Path: "/"}, Close: true,
		Header: http.Header{"User-Agent": {"penstock"}},
	}
	if c.Path != "" {
		u, err := url.ParseRequestURI(c.Path)
		if err != nil {
			return err
		}
		req.URL = u
	}
	if req.Host == "" {
		req.Host = "localhost"
		if to.Path == "" {
			req.Host = to.AddrPort.String()
		}
	}
	if err := req.Write(conn); err != nil {
		return err
	}
	// The body is not read: it ends with the connection.
	res, err := http.ReadResponse(bufio.NewReader(io.LimitReader(conn, maxAnswer)), req)
	if err != nil {
		return err
	}
	statuses := c.Statuses
	if len(statuses) == 0 {
		statuses = [][2]int{{200, 399}}
	}
	for _, s := range statuses {
		if s[0] <= res.StatusCode && res.StatusCode <= s[1] {
			return nil
		}
	}
	want := make([]string, len(statuses))
	for i, s := range statuses {
		want[i] = fmt.Sprintf("%d-%d", s[0], s[1])
		if s[0] == s[1] {
			want[i] = fmt.Sprint(s[0])
		}
	}
	return fmt.Errorf("status %d; expected: %s", res.StatusCode, strings.Join(want, ", "))
}
