//go:build linux

package main

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"strconv"
	"testing"

	"github.com/penstock/penstock/bench/internal/certs"
	"github.com/penstock/penstock/internal/testnet"
)

func TestMain(m *testing.M) { testnet.Main(m) }

// TestShim is the runner for a connection that ends well, and one that ends without close_notify.
func TestShim(t *testing.T) {
	authority, err := certs.New(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	pair, err := authority.Server("server", "ecdsa", "test")
	if err != nil {
		t.Fatal(err)
	}
	cert, err := tls.LoadX509KeyPair(pair.Certificate, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	for _, as := range []string{"gotls", "engine"} {
		for _, server := range []bool{false, true} {
			for _, whole := range []bool{true, false} {
				l, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close()
				args := []string{"-as", as, "-port", strconv.Itoa(l.Addr().(*net.TCPAddr).Port), "-shim-id", "7", "-expect-version", "772"}
				if server {
					args = append(args, "-server", "-cert-file", pair.Certificate, "-key-file", pair.Key)
				} else {
					args = append(args, "-trust-cert", authority.CA)
				}
				s, err := parseShim(args)
				if err != nil {
					t.Fatal(err)
				}
				ended := make(chan error, 1)
				go func() { ended <- s.run() }()
				raw, err := l.Accept()
				if err != nil {
					t.Fatal(err)
				}
				defer raw.Close()
				id := make([]byte, 8)
				if _, err := io.ReadFull(raw, id); err != nil || binary.LittleEndian.Uint64(id) != 7 {
					t.Fatalf("the shim's ID is %x, %v", id, err)
				}
				c := tls.Client(raw, &tls.Config{InsecureSkipVerify: true})
				if !server {
					c = tls.Server(raw, &tls.Config{Certificates: []tls.Certificate{cert}})
				}
				said, answer := bytes.Repeat([]byte("owned by one connection"), 1000), []byte(nil)
				go c.Write(said)
				answer = make([]byte, len(said))
				if _, err := io.ReadFull(c, answer); err != nil {
					t.Fatalf("as %s, server %t: %v", as, server, err)
				}
				for i := range answer {
					answer[i] ^= 0xff
				}
				if !bytes.Equal(answer, said) {
					t.Errorf("as %s, server %t: the answer is not the complement of what was said", as, server)
				}
				if whole {
					c.CloseWrite()
				}
				raw.(*net.TCPConn).CloseWrite()
				io.Copy(io.Discard, raw)
				// crypto/tls takes the end of the connection for the end of the stream; an engine does not.
				if err := <-ended; (err == nil) != (whole || as == "gotls") {
					t.Errorf("as %s, server %t, close_notify %t: the shim says %v", as, server, whole, err)
				}
			}
		}
	}
}

// TestUnknownFlag: what the shim does not offer is an error, which the runner is told as such.
func TestUnknownFlag(t *testing.T) {
	if _, err := parseShim([]string{"-as", "gotls", "-shim-id", "1", "-dtls"}); err == nil {
		t.Error("a test with -dtls is not left out")
	}
}
