package relay_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/penstock/penstock/relay"
)

// socks is what the hooks know of a client of a SOCKS5 server.
type socks struct {
	host string // its request
	port uint16
	to   []relay.Addr // the addresses of host; nil: it was not looked up
	err  error        // of the last attempt
}

// socks5 are the hooks of a SOCKS5 server (RFC 1928): CONNECT, without authentication.
var socks5 = relay.Hooks{
	Admit: func(f *relay.Flow) relay.Cause {
		f.StartSniff(512, 10*time.Second)
		return relay.CauseNone
	},
	Sniff: func(f *relay.Flow, b []byte, last bool) (take int, next relay.SniffNext) {
		if f.Value() == nil { // version 5, number of methods, methods
			if len(b) < 2 || len(b) < 2+int(b[1]) {
				return 0, relay.SniffMore
			}
			take := 2 + int(b[1])
			if b[0] != 5 || bytes.IndexByte(b[2:take], 0) < 0 {
				f.Reply([]byte{5, 0xff}) // no acceptable methods
				return 0, relay.SniffRefuse
			}
			f.SetValue(new(socks))
			f.Reply([]byte{5, 0})
			return take, relay.SniffMore
		}
		// version 5, command, 0, kind of address, address, port
		if len(b) < 5 {
			return 0, relay.SniffMore
		}
		at, end := 4, 4
		switch b[3] {
		case 1:
			end += net.IPv4len
		case 3:
			at++
			end = at + int(b[4])
		case 4:
			end += net.IPv6len
		}
		if b[1] != 1 || at == end {
			f.Reply(socksReply(7, relay.Addr{})) // command not supported
			return 0, relay.SniffRefuse
		}
		if len(b) < end+2 {
			return 0, relay.SniffMore
		}
		c := f.Value().(*socks)
		c.host, c.port = string(b[at:end]), binary.BigEndian.Uint16(b[end:])
		if ip, ok := netip.AddrFromSlice(b[at:end]); ok && b[3] != 3 {
			c.to = []relay.Addr{{Network: relay.TCP, AddrPort: netip.AddrPortFrom(ip, c.port)}}
		}
		return end + 2, relay.SniffDone
	},
	Upstream: func(f *relay.Flow, attempt int) *relay.Addr {
		c := f.Value().(*socks)
		if c.to == nil {
			ref := f.Ref()
			go func() {
				c.lookup()
				ref.Resume()
			}()
			f.Queue()
			return nil
		}
		if attempt < len(c.to) {
			return &c.to[attempt]
		}
		code := byte(4) // host unreachable
		if errors.Is(c.err, syscall.ECONNREFUSED) {
			code = 5
		}
		f.Reply(socksReply(code, relay.Addr{}))
		return nil
	},
	Connected: func(f *relay.Flow, to *relay.Addr, took time.Duration, err error) {
		if err == nil {
			f.Reply(socksReply(0, f.UpstreamLocal()))
		} else {
			f.Value().(*socks).err = err
		}
	},
}

// lookup finds the addresses of a name. A hook must not wait for it.
func (c *socks) lookup() {
	c.to = []relay.Addr{}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	ips, _ := net.DefaultResolver.LookupNetIP(ctx, "ip", c.host)
	for _, ip := range ips {
		c.to = append(c.to, relay.Addr{Network: relay.TCP, AddrPort: netip.AddrPortFrom(ip, c.port)})
	}
}

// socksReply is version 5, code, 0, kind of address, address, port.
func socksReply(code byte, local relay.Addr) []byte {
	ip := local.AddrPort.Addr()
	if !ip.IsValid() {
		ip = netip.IPv4Unspecified()
	}
	kind := byte(1)
	if ip.Is6() {
		kind = 4
	}
	b := append([]byte{5, code, 0, kind}, ip.AsSlice()...)
	return binary.BigEndian.AppendUint16(b, local.AddrPort.Port())
}

// A SOCKS5 server: Hooks.Sniff answers the client's greeting, Hooks.Connected says that the upstream is connected, with the
// address from which, and Hooks.Upstream why it could not be. It works with curl --socks5-hostname.
func ExampleFlow_Reply() {
	engine, err := relay.New(relay.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer engine.Close()
	proxy, err := engine.Listen(anyPort, relay.ListenConfig{Hooks: socks5})
	if err != nil {
		fmt.Println(err)
		return
	}

	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "hello")
	}))
	defer server.Close()
	client := http.Client{Transport: &http.Transport{
		Proxy:             http.ProxyURL(&url.URL{Scheme: "socks5", Host: proxy.Addr().AddrPort.String()}),
		DisableKeepAlives: true,
	}}
	for _, at := range []string{server.URL, "http://127.0.0.1:1"} {
		r, err := client.Get(at)
		if err != nil {
			fmt.Println("refused:", strings.HasSuffix(err.Error(), "connection refused"))
			continue
		}
		body, err := io.ReadAll(r.Body)
		r.Body.Close()
		fmt.Printf("%s %v\n", body, err)
	}
	// Output:
	// hello <nil>
	// refused: true
}
