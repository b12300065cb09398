package relay_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"time"

	"github.com/penstock/penstock/relay"
)

// httpConnect are the hooks of a proxy for the method CONNECT of HTTP (RFC 9110, 9.3.6), to IP addresses. For names, look
// them up as the SOCKS5 server does.
var httpConnect = relay.Hooks{
	Admit: func(f *relay.Flow) relay.Cause {
		f.StartSniff(8<<10, 10*time.Second)
		return relay.CauseNone
	},
	Sniff: func(f *relay.Flow, b []byte, last bool) (take int, next relay.SniffNext) {
		end := bytes.Index(b, []byte("\r\n\r\n")) + 4
		if end < 4 && !last {
			return 0, relay.SniffMore
		}
		r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(b)))
		if err == nil && r.Method != http.MethodConnect {
			f.Reply([]byte("HTTP/1.1 405 Method Not Allowed\r\nAllow: CONNECT\r\nConnection: close\r\n\r\n"))
			return 0, relay.SniffRefuse
		}
		var to netip.AddrPort
		if err == nil {
			to, err = netip.ParseAddrPort(r.Host)
		}
		if err != nil {
			f.Reply([]byte("HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"))
			return 0, relay.SniffRefuse
		}
		f.SetValue(&relay.Addr{Network: relay.TCP, AddrPort: to})
		return end, relay.SniffDone
	},
	Upstream: func(f *relay.Flow, attempt int) *relay.Addr {
		if attempt == 0 {
			return f.Value().(*relay.Addr)
		}
		return nil
	},
	Connected: func(f *relay.Flow, to *relay.Addr, took time.Duration, err error) {
		if err == nil {
			f.Reply([]byte("HTTP/1.1 200 OK\r\n\r\n"))
		} else {
			f.Reply([]byte("HTTP/1.1 502 Bad Gateway\r\nConnection: close\r\n\r\n"))
		}
	},
}

// A proxy for HTTPS: clients ask it to CONNECT. It works with curl -p -x.
func ExampleFlow_Reply_connect() {
	engine, err := relay.New(relay.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer engine.Close()
	proxy, err := engine.Listen(anyPort, relay.ListenConfig{Hooks: httpConnect})
	if err != nil {
		fmt.Println(err)
		return
	}

	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "hello")
	}))
	defer server.Close()
	client := server.Client()
	transport := client.Transport.(*http.Transport)
	transport.Proxy = http.ProxyURL(&url.URL{Scheme: "http", Host: proxy.Addr().AddrPort.String()})
	transport.DisableKeepAlives = true
	for _, at := range []string{server.URL, "https://127.0.0.1:1"} {
		r, err := client.Get(at)
		if err != nil {
			fmt.Println(errors.Unwrap(err))
			continue
		}
		body, err := io.ReadAll(r.Body)
		r.Body.Close()
		fmt.Printf("%s %v\n", body, err)
	}
	// Output:
	// hello <nil>
	// Bad Gateway
}
