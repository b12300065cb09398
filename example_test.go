//go:build linux

package penstock_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	"github.com/penstock/penstock/relay"
)

// This is a complete relay: it listens, connects each client to the first upstream or, if that
// fails, to the second, and shuts down without cutting a flow.
func Example() {
	upstreams := []relay.Addr{{Network: relay.Echo}, {Network: relay.Unix, Path: "/run/app.sock"}}

	engine, err := relay.New(relay.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer engine.Close()

	listener, err := engine.Listen(relay.Addr{Network: relay.TCP, AddrPort: netip.MustParseAddrPort("127.0.0.1:0")}, relay.ListenConfig{
		Timeouts: relay.Timeouts{Idle: time.Minute},
		Hooks: relay.Hooks{
			Upstream: func(f *relay.Flow, attempt int) *relay.Addr {
				if attempt == len(upstreams) {
					return nil
				}
				return &upstreams[attempt]
			},
			Done: func(r *relay.Record) {
				fmt.Println(r.Cause, r.Upstream, r.Up.Written, "bytes")
			},
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}

	client, err := net.Dial("tcp", listener.Addr().AddrPort.String())
	if err != nil {
		fmt.Println(err)
		return
	}
	io.WriteString(client, "hello")
	client.(*net.TCPConn).CloseWrite()
	answer, err := io.ReadAll(client)
	fmt.Printf("%s %v\n", answer, err)
	client.Close()

	fmt.Println(engine.Drain(context.Background()))
	// Unordered output:
	// hello <nil>
	// end echo: 5 bytes
	// <nil>
}
