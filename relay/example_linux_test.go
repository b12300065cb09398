package relay_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"time"

	"github.com/penstock/penstock/clienthello"
	"github.com/penstock/penstock/relay"
)

// anyPort stands for a free port of this host.
var anyPort = relay.Addr{Network: relay.TCP, AddrPort: netip.MustParseAddrPort("127.0.0.1:0")}

// addrOf returns the address of a listener of package net.
func addrOf(l net.Listener) *relay.Addr {
	return &relay.Addr{Network: relay.TCP, AddrPort: l.Addr().(*net.TCPAddr).AddrPort()}
}

// Listen accepts clients and relays each to the first upstream that can be connected.
func ExampleEngine_Listen() {
	engine, err := relay.New(relay.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer engine.Close()

	upstreams := []relay.Addr{
		{Network: relay.Unix, Path: "/run/does-not-exist.sock"},
		{Network: relay.Echo}, // returns what the client sends
	}
	listener, err := engine.Listen(anyPort, relay.ListenConfig{
		Timeouts: relay.Timeouts{Connect: time.Second, Idle: time.Minute},
		Hooks: relay.Hooks{
			Upstream: func(f *relay.Flow, attempt int) *relay.Addr {
				if attempt == len(upstreams) {
					return nil
				}
				return &upstreams[attempt]
			},
			Done: func(r *relay.Record) {
				fmt.Println(r.Cause, r.Upstream, r.Attempts, "attempts", r.Up.Written, "bytes")
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

	engine.Drain(context.Background()) // returns when Done has been called for each flow
	// Unordered output:
	// hello <nil>
	// end echo: 2 attempts 5 bytes
}

// Routing by TLS server name: the engine shows the first bytes of each client to
// Hooks.Sniff until the ClientHello is complete. The upstream receives them
// unchanged, so TLS is between the client and the upstream.
func ExampleFlow_StartSniff() {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "hello from ", r.Host)
	}))
	defer server.Close()
	upstreams := map[string]*relay.Addr{"example.com": addrOf(server.Listener)}

	engine, err := relay.New(relay.Config{Loops: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer engine.Close()
	listener, err := engine.Listen(anyPort, relay.ListenConfig{Hooks: relay.Hooks{
		Admit: func(f *relay.Flow) relay.Cause {
			f.StartSniff(clienthello.MaxSize, 5*time.Second)
			return relay.CauseNone
		},
		Sniff: func(f *relay.Flow, b []byte, last bool) (take int, next relay.SniffNext) {
			hello, err := clienthello.Parse(b)
			switch {
			case errors.Is(err, clienthello.ErrIncomplete) && !last:
				return 0, relay.SniffMore
			case err != nil:
				return 0, relay.SniffRefuse
			}
			f.SetValue(hello.ServerName)
			return 0, relay.SniffDone
		},
		Upstream: func(f *relay.Flow, attempt int) *relay.Addr {
			if attempt > 0 {
				return nil
			}
			return upstreams[f.Value().(string)]
		},
	}})
	if err != nil {
		fmt.Println(err)
		return
	}

	transport := server.Client().Transport.(*http.Transport)
	transport.DisableKeepAlives = true
	transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", listener.Addr().AddrPort.String())
	}
	for _, name := range []string{"example.com", "other.test"} {
		r, err := server.Client().Get("https://" + name)
		if err != nil {
			fmt.Println(name, "is not served")
			continue
		}
		body, _ := io.ReadAll(r.Body)
		r.Body.Close()
		fmt.Printf("%s\n", body)
	}
	// Output:
	// hello from example.com
	// other.test is not served
}

// The engine sends a PROXY header with the client's address to the upstream, before
// the client's first byte.
func ExampleFlow_Preface() {
	upstream, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer upstream.Close()

	engine, err := relay.New(relay.Config{Loops: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer engine.Close()
	listener, err := engine.Listen(anyPort, relay.ListenConfig{Hooks: relay.Hooks{
		Upstream: func(f *relay.Flow, attempt int) *relay.Addr {
			if attempt > 0 {
				return nil
			}
			return addrOf(upstream)
		},
		Connected: func(f *relay.Flow, to *relay.Addr, took time.Duration, err error) {
			if err == nil {
				f.Preface(relay.AppendProxyHeader(nil, 1, f.Client(), f.Local()))
			}
		},
	}})
	if err != nil {
		fmt.Println(err)
		return
	}

	client, err := net.Dial("tcp", listener.Addr().AddrPort.String())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	io.WriteString(client, "hello\n")

	server, err := upstream.Accept()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	r := bufio.NewReader(server)
	header, _ := r.ReadString('\n')
	var from, to string
	var fromPort, toPort int
	fmt.Sscanf(header, "PROXY TCP4 %s %s %d %d", &from, &to, &fromPort, &toPort)
	fmt.Println(fmt.Sprintf("%s:%d", from, fromPort) == client.LocalAddr().String())
	line, err := r.ReadString('\n')
	fmt.Printf("%q %v\n", line, err)
	// Output:
	// true
	// "hello\n" <nil>
}

// A hook must not block. Slow work, such as a lookup, runs on a goroutine while the
// flow is queued. Resume then has Hooks.Upstream called again.
func ExampleFlowRef_Resume() {
	type lookup struct{ found *relay.Addr }

	engine, err := relay.New(relay.Config{Loops: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer engine.Close()
	listener, err := engine.Listen(anyPort, relay.ListenConfig{
		Timeouts: relay.Timeouts{Queue: 10 * time.Second},
		Hooks: relay.Hooks{
			Upstream: func(f *relay.Flow, attempt int) *relay.Addr {
				if attempt > 0 {
					return nil
				}
				if l, ok := f.Value().(*lookup); ok {
					return l.found // nil if there is none
				}
				l, ref := new(lookup), f.Ref()
				f.SetValue(l)
				go func() {
					time.Sleep(time.Millisecond) // look up the upstream
					l.found = &relay.Addr{Network: relay.Echo}
					ref.Resume() // the hook sees l.found
				}()
				f.Queue()
				return nil
			},
			Done: func(r *relay.Record) {
				fmt.Println(r.Cause, r.Upstream, r.Queued > 0)
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
	client.Close()
	engine.Drain(context.Background()) // returns when Done has been called
	fmt.Printf("%s %v\n", answer, err)
	// Output:
	// end echo: true
	// hello <nil>
}

// A program that accepts and connects by itself gives the pair of connections to the
// engine. No goroutine is needed for them any more.
func ExampleEngine_Relay() {
	engine, err := relay.New(relay.Config{Loops: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer engine.Close()

	client, a := connected()
	defer client.Close()
	b, server := connected()
	defer server.Close()

	done := make(chan struct{})
	log := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: timeless}))
	err = engine.Relay(a, b, relay.PairConfig{
		Timeouts: relay.Timeouts{Idle: time.Minute},
		Done: func(r *relay.Record) {
			log.Info("flow", "cause", r.Cause, "bytes_up", r.Up.Written, "bytes_down", r.Down.Written, "path", r.Up.Path, "why", r.Up.Why)
			close(done)
		},
	})
	if err != nil { // both are still ours
		fmt.Println(err)
		a.Close()
		b.Close()
		return
	}

	io.WriteString(client, "ping")
	client.(*net.TCPConn).CloseWrite()
	got, err := io.ReadAll(server)
	fmt.Printf("%s %v\n", got, err)
	server.Close()
	<-done
	// Output:
	// ping <nil>
	// level=INFO msg=flow cause=end bytes_up=4 bytes_down=0 path=copy why="small reads"
}

func timeless(groups []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return a
}

// connected returns the two ends of a connection.
func connected() (a, b net.Conn) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	defer l.Close()
	if a, err = net.Dial("tcp", l.Addr().String()); err != nil {
		panic(err)
	}
	if b, err = l.Accept(); err != nil {
		panic(err)
	}
	return a, b
}
