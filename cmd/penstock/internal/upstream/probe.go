package upstream

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"regexp"
	"syscall"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/certs"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/relay"
)

// A Control returns a function for net.Dialer that sets a group's interface and mark.
type Control func(*spec.Dial) func(network, address string, c syscall.RawConn) error

// maxAnswer bounds what a check reads: an answer, the head of a response, its body.
const maxAnswer = 64 << 10

// localProxyHeader is the PROXY header that a check sends to a member that expects one, by
// version: the connection is the relay's own (the PROXY protocol, sections 2.1 and 2.2).
var localProxyHeader = [...]string{1: "PROXY UNKNOWN\r\n", 2: "\r\n\r\n\x00\r\nQUIT\n\x20\x00\x00\x00"}

// A prober checks members.
type prober struct {
	control Control        // nil: no socket options are set
	clients *certs.Clients // TLS towards members
}

// A probed is a member as it is checked, by its group's Check.
type probed struct {
	group *spec.Group
	addr  relay.Addr
	at    checkAt        // instead of addr
	host  string         // the member's own, of the certificate; empty: none
	body  *regexp.Regexp // of Check.BodyRE; nil: none
}

// checkAt is what is checked instead of a member's own address and port; zero: those.
type checkAt struct {
	addr netip.Addr
	port uint16
}

// A finding is what a check has learned besides whether the member passes.
type finding struct {
	expires time.Time // the member's certificate; zero: it has shown none
}

// probe checks a member once. It returns nil if the member passes. ctx must have a deadline.
func (p *prober) probe(ctx context.Context, m *probed) (found finding, err error) {
	g, c := m.group, m.group.Check
	conn, err := p.dial(ctx, m)
	if err != nil {
		return found, err
	}
	defer conn.Close()
	// The end of ctx, including its deadline, ends reading and writing.
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	on := conn
	switch p := g.Dial.Proxy; {
	case p <= 0 || p >= len(localProxyHeader):
	case c.Datagrams():
		on = prefaced{conn, localProxyHeader[p]}
	default:
		if _, err := io.WriteString(conn, localProxyHeader[p]); err != nil {
			return found, err
		}
	}
	t := g.CheckTLS()
	if t != nil && c.Kind != "quic" {
		s, err := p.handshake(conn, t, m, &found)
		if err != nil {
			return found, err
		}
		on = s
		defer func() {
			if err == nil {
				s.CloseWrite() // members log connections that end without
			}
		}()
	}
	switch c.Kind {
	case "send-expect", "udp":
		err = sendExpect(on, c)
	case "http":
		err = httpCheck(on, m)
	case "postgres":
		err = postgresCheck(on, c)
	case "mysql":
		err = mysqlCheck(on, c)
	case "quic":
		if t != nil {
			return found, p.quicHandshake(ctx, on, t, m, &found)
		}
		err = quicCheck(on)
	}
	return found, err
}

// dial connects as the group's flows do: from its source, over its interface, with its mark. It
// cannot connect from a client's address: then it does from an address of this host, or from the
// check's own source.
func (p *prober) dial(ctx context.Context, m *probed) (net.Conn, error) {
	g, c, to := m.group, m.group.Check, m.addr
	if to.Path == "" {
		network, ip := "tcp", to.AddrPort
		if c.Datagrams() {
			network = "udp"
		}
		if at := m.at.addr; at.IsValid() {
			ip = netip.AddrPortFrom(at, ip.Port())
		}
		if port := cmp.Or(m.at.port, c.Port); port != 0 {
			ip = netip.AddrPortFrom(ip.Addr(), port)
		}
		sources := g.Dial.Source
		if c.Source.IsValid() {
			sources = []netip.Addr{c.Source}
		}
		return p.dialIP(ctx, g, network, ip, sources)
	}
	d := p.dialer(g)
	if c.Datagrams() {
		// The answer needs a destination address. Package net does not let the kernel
		// choose one (unix(7), autobind).
		d.LocalAddr = &net.UnixAddr{Net: "unixgram", Name: fmt.Sprintf("@penstock-check-%016x", rand.Uint64())}
		return d.DialContext(ctx, "unixgram", to.Path)
	}
	return d.DialContext(ctx, "unix", to.Path)
}

// dialIP connects over TCP or UDP, from the first of the sources that is of the same family.
func (p *prober) dialIP(ctx context.Context, g *spec.Group, network string, to netip.AddrPort, sources []netip.Addr) (net.Conn, error) {
	d := p.dialer(g)
	for _, from := range sources {
		if from.Unmap().Is4() != to.Addr().Unmap().Is4() {
			continue
		}
		d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0))
		if network == "udp" {
			d.LocalAddr = net.UDPAddrFromAddrPort(netip.AddrPortFrom(from, 0))
		}
		break
	}
	return d.DialContext(ctx, network, to.String())
}

// dialer returns a dialer with the socket options of a group.
func (p *prober) dialer(g *spec.Group) net.Dialer {
	d := net.Dialer{}
	if p.control != nil {
		d.Control = p.control(&g.Dial)
	}
	return d
}

// prefaced is a connection whose datagrams have a preface in front.
type prefaced struct {
	net.Conn
	preface string
}

// Write sends one datagram.
func (p prefaced) Write(b []byte) (int, error) {
	n, err := p.Conn.Write(append([]byte(p.preface), b...))
	return max(0, n-len(p.preface)), err
}

// sendExpect takes the steps of a check, one after the other.
func sendExpect(conn net.Conn, c *spec.Check) error {
	x := &exchange{conn: conn, datagrams: c.Kind == "udp", b: make([]byte, maxAnswer)}
	if err := x.step(c.Send, c.Expect); err != nil {
		return err
	}
	for i, next := range c.Then {
		if err := x.step(next.Send, next.Expect); err != nil {
			return fmt.Errorf("step %d: %w", i+2, err)
		}
	}
	return nil
}

// An exchange is the state of a check with steps.
type exchange struct {
	conn      net.Conn
	datagrams bool   // each is an answer of its own
	got       []byte // what has come behind what was expected last, or after what was sent last
	b         []byte
}

// step sends, and reads until the answer contains what is expected.
func (x *exchange) step(send, expect []byte) error {
	if len(send) > 0 {
		x.got = x.got[:0]
		if _, err := x.conn.Write(send); err != nil {
			return err
		}
	}
	from := 0 // what is before was looked at, and is not looked at again
	for {
		if at := bytes.Index(x.got[from:], expect); at >= 0 && len(x.got) > 0 {
			x.got = x.got[from+at+len(expect):]
			if len(expect) == 0 {
				x.got = nil
			}
			return nil
		}
		if len(x.got) >= maxAnswer {
			return fmt.Errorf("the answer is more than %d bytes long; expected: %.40q", maxAnswer, expect)
		}
		from = max(0, len(x.got)-len(expect)+1)
		n, err := x.conn.Read(x.b)
		if x.datagrams && n > 0 {
			x.got, from = nil, 0 // a wrong answer is kept for the error
		}
		x.got = append(x.got, x.b[:max(n, 0)]...)
		switch {
		case n > 0:
		case err != nil && len(x.got) > 0:
			return fmt.Errorf("the answer is %.40q; expected: %.40q", x.got, expect)
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), isTimeout(err):
			return fmt.Errorf("no answer (%w); expected: %s", err, expected(expect))
		case err != nil:
			return err
		}
	}
}

func isTimeout(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }

func expected(b []byte) string {
	if len(b) == 0 {
		return "any"
	}
	return fmt.Sprintf("%.40q", b)
}
