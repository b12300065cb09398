package relay_test

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/penstock/penstock/quichello"
	"github.com/penstock/penstock/relay"
)

// Routing by the server name of QUIC: the engine shows the datagrams of each client to Hooks.Sniff until the
// ClientHello is complete, and sends all of them on, unchanged. What is no QUIC goes to an upstream, too.
func ExampleFlow_StartSniff_quic() {
	server, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	address := server.LocalAddr().(*net.UDPAddr).AddrPort()
	upstreams := map[string]*relay.Addr{"example.com": {Network: relay.UDP, AddrPort: address}, "": {Network: relay.Echo}}

	engine, err := relay.New(relay.Config{Loops: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer engine.Close()
	type client struct {
		hello quichello.Assembler
		name  string
	}
	listener, err := engine.Listen(relay.Addr{Network: relay.UDP, AddrPort: netip.MustParseAddrPort("127.0.0.1:0")}, relay.ListenConfig{Hooks: relay.Hooks{
		Admit: func(f *relay.Flow) relay.Cause {
			f.SetValue(new(client))
			f.StartSniff(16<<10, 5*time.Second)
			return relay.CauseNone
		},
		Sniff: func(f *relay.Flow, b []byte, last bool) (take int, next relay.SniffNext) {
			c := f.Value().(*client)
			hello, err := c.hello.Add(b)
			switch {
			case errors.Is(err, quichello.ErrIncomplete):
				return 0, relay.SniffMore // which refuses the client if this is the last datagram
			case errors.Is(err, quichello.ErrMalformed), errors.Is(err, quichello.ErrOther):
				return len(b), relay.SniffMore // others can send in the client's name
			case err == nil:
				c.name = hello.ServerName
			}
			c.hello = quichello.Assembler{} // its memory is not needed any more
			return 0, relay.SniffDone
		},
		Upstream: func(f *relay.Flow, attempt int) *relay.Addr {
			if attempt > 0 {
				return nil
			}
			return upstreams[f.Value().(*client).name]
		},
		Done: func(r *relay.Record) {
			fmt.Println(r.Value.(*client).name, r.Up.Datagrams, r.Down.Datagrams, r.Cause)
		},
	}})
	if err != nil {
		fmt.Println(err)
		return
	}

	text, err := os.ReadFile("../quichello/testdata/rfc9001-a2.hex") // the first datagram of a client, from RFC 9001
	if err != nil {
		fmt.Println(err)
		return
	}
	first, err := hex.DecodeString(strings.Join(strings.Fields(string(text)), ""))
	if err != nil {
		fmt.Println(err)
		return
	}
	quic, err := net.Dial("udp", listener.Addr().AddrPort.String())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer quic.Close()
	quic.Write(first)
	b := make([]byte, 2000)
	n, _, err := server.ReadFrom(b)
	fmt.Println("the server has", n, "bytes, those of the client:", string(b[:n]) == string(first), err)

	other, err := net.Dial("udp", listener.Addr().AddrPort.String())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer other.Close()
	other.Write([]byte("no QUIC"))
	n, err = other.Read(b)
	fmt.Printf("%s %v\n", b[:n], err)
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	engine.Drain(ended) // ends the flows

	// Unordered output:
	// the server has 1200 bytes, those of the client: true <nil>
	// no QUIC <nil>
	// example.com 1 0 drained
	//  1 1 drained
}
