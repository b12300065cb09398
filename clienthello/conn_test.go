package clienthello

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testnet"
)

// pair returns a client and the server's end of its connection.
func pair(t *testing.T) (client, server *net.TCPConn) {
	t.Helper()
	l := testnet.Listen(t, "tcp4")
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		s.Close()
	})
	if err := s.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return c.(*net.TCPConn), s.(*net.TCPConn)
}

// TestPeekLosesNothing: whatever the client says first, all of it is read from the
// connection that Peek returns, or taken from it.
func TestPeekLosesNothing(t *testing.T) {
	good := hello(t, &tls.Config{ServerName: "a.test"})
	long := made(extensionServerName, names("long.test"), 0x1234, string(make([]byte, 20000)))
	for name, c := range map[string]struct {
		said string
		want error
		sni  string
	}{
		"a hello":            {string(good), nil, "a.test"},
		"a long one":         {string(long), nil, "long.test"},
		"and bytes after it": {string(good) + "more", nil, "a.test"},
		"not TLS":            {"GET / HTTP/1.1\r\n\r\n", ErrNotTLS, ""},
		"malformed":          {string(made(extensionServerName, names("192.0.2.1"))), ErrMalformed, ""},
		"without an end":     {string(recordOf(append([]byte{1, 1, 0, 0}, make([]byte, 1<<16)...), 100)), ErrMalformed, ""},
		"cut short":          {string(good[:len(good)-1]), io.EOF, ""},
		"nothing":            {"", io.EOF, ""},
	} {
		for _, take := range []bool{false, true} {
			client, server := pair(t)
			go func() {
				io.WriteString(client, c.said)
				client.CloseWrite()
			}()
			conn, h, err := Peek(server)
			if !errors.Is(err, c.want) || (err == nil) != (c.want == nil) || h.ServerName != c.sni {
				t.Fatalf("%s: %+v, %v, want %v", name, h, err, c.want)
			}
			var got []byte
			if take {
				if conn.Unwrap() != net.Conn(server) {
					t.Errorf("%s: another connection is inside", name)
				}
				got = append(got, conn.TakeRead()...)
				if len(got) > MaxSize {
					t.Errorf("%s: %d bytes were read ahead", name, len(got))
				}
				if again := conn.TakeRead(); again != nil {
					t.Errorf("%s: taken twice: %q", name, again)
				}
			}
			rest, err := io.ReadAll(conn)
			if got = append(got, rest...); !bytes.Equal(got, []byte(c.said)) || err != nil {
				t.Errorf("%s: %d bytes of %d came, %v", name, len(got), len(c.said), err)
			}
		}
	}
}

// TestPeekByteByByte: each byte in a segment of its own.
func TestPeekByteByByte(t *testing.T) {
	client, server := pair(t)
	good := hello(t, &tls.Config{ServerName: "a.test"})
	go func() {
		for i := range good {
			client.Write(good[i : i+1])
		}
	}()
	conn, h, err := Peek(server)
	if err != nil || h.ServerName != "a.test" || !bytes.Equal(conn.TakeRead(), good) {
		t.Errorf("%+v, %v", h, err)
	}
}

// TestPeekDeadline: a client that says nothing is given up, and can say it later.
func TestPeekDeadline(t *testing.T) {
	client, server := pair(t)
	if _, err := client.Write([]byte{recordHandshake}); err != nil {
		t.Fatal(err)
	}
	if err := server.SetReadDeadline(time.Now().Add(20 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	// Whether the byte came in time does not matter.
	conn, h, err := Peek(server)
	if !errors.Is(err, os.ErrDeadlineExceeded) || !sameHello(h, Hello{}) {
		t.Errorf("%+v, %v", h, err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 1)
	if _, err := io.ReadFull(conn, b); err != nil || b[0] != recordHandshake {
		t.Errorf("%q, %v", b, err)
	}
}

// idle is a connection whose Read returns nothing.
type idle struct{ net.Conn }

func (idle) Read([]byte) (int, error) { return 0, nil }

func TestPeekNoProgress(t *testing.T) {
	if c, _, err := Peek(idle{}); err != io.ErrNoProgress || c == nil {
		t.Errorf("Peek = %v, %v", c, err)
	}
}
