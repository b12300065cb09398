//go:build linux

package main

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
)

// peerMain is this program as a peer made with quic-go, with the arguments that those made with others have:
//
//	peer server ADDRESS CERTIFICATE KEY ROOT [ID|retry]
//	peer client ADDRESS CA NAME PATH OUT [BYTES]
//
// or as what starts a browser:
//
//	peer chromium PORT CERTIFICATE NAME OUT
func peerMain(args []string) error {
	if len(args) < 5 {
		return errors.New("peer server|client|chromium: see the source")
	}
	last := ""
	switch args[0] {
	case "server":
		if len(args) > 5 {
			last = args[5]
		}
		return goServer(args[1], args[2], args[3], args[4], last)
	case "client":
		if len(args) > 6 {
			last = args[6]
		}
		return goClient(args[1], args[2], args[3], args[4], args[5], last)
	case "chromium":
		return chromium(args[1], args[2], args[3], args[4])
	}
	return fmt.Errorf("peer %q", args[0])
}

// routable makes connection IDs with a server's ID behind the first byte.
type routable []byte

func (id routable) GenerateConnectionID() (quic.ConnectionID, error) {
	b := make([]byte, id.ConnectionIDLen())
	rand.Read(b)
	copy(b[1:], id)
	return quic.ConnectionIDFromBytes(b), nil
}

func (routable) ConnectionIDLen() int { return 16 }

func goServer(address, certificate, key, root, id string) error {
	pair, err := tls.LoadX509KeyPair(certificate, key)
	if err != nil {
		return err
	}
	at, err := net.ResolveUDPAddr("udp4", address)
	if err != nil {
		return err
	}
	c, err := net.ListenUDP("udp4", at)
	if err != nil {
		return err
	}
	t := &quic.Transport{Conn: c}
	switch id {
	case "":
	case "retry": // of every client
		t.VerifySourceAddress = func(net.Addr) bool { return true }
	default:
		b, err := hex.DecodeString(id)
		if err != nil {
			return err
		}
		t.ConnectionIDGenerator = routable(b)
	}
	settings := &tls.Config{Certificates: []tls.Certificate{pair}}
	settings.SetSessionTicketKeys([][32]byte{sha256.Sum256(pair.Certificate[0])}) // what one server of a name has given out, the others can read
	l, err := t.ListenEarly(http3.ConfigureTLSConfig(settings), &quic.Config{Allow0RTT: true})
	if err != nil {
		return err
	}
	return (&http3.Server{Handler: http.FileServer(http.Dir(root))}).ServeListener(l)
}

func goClient(address, ca, name, path, out, migrate string) error {
	ctx := context.Background()
	pem, err := os.ReadFile(ca)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	to, err := net.ResolveUDPAddr("udp4", address)
	if err != nil {
		return err
	}
	socket := func() (*quic.Transport, error) {
		c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		return &quic.Transport{Conn: c}, err
	}
	from, err := socket()
	if err != nil {
		return err
	}
	conn, err := from.Dial(ctx, to, &tls.Config{RootCAs: roots, ServerName: name, NextProtos: []string{http3.NextProtoH3}}, &quic.Config{})
	if err != nil {
		return err
	}
	request, err := http.NewRequest(http.MethodGet, "https://"+name+path, nil)
	if err != nil {
		return err
	}
	answer, err := new(http3.Transport).NewClientConn(conn).RoundTrip(request)
	if err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		return errors.New(answer.Status)
	}
	file, err := os.Create(out)
	if err != nil {
		return err
	}
	if migrate != "" {
		n, err := strconv.ParseInt(migrate, 10, 64)
		if err != nil {
			return err
		}
		if _, err := io.CopyN(file, answer.Body, n); err != nil {
			return err
		}
		other, err := socket()
		if err != nil {
			return err
		}
		path, err := conn.AddPath(other)
		if err != nil {
			return err
		}
		probed := make(chan error, 1)
		go func() { // its answers come while the download goes on
			err := path.Probe(ctx)
			if err == nil {
				err = path.Switch()
			}
			probed <- err
		}()
		b := make([]byte, 4096)
		for moved := false; ; {
			select {
			case err := <-probed:
				if err != nil {
					return err
				}
				moved = true
			default:
			}
			n, err := answer.Body.Read(b)
			if _, failed := file.Write(b[:n]); failed != nil {
				return failed
			}
			switch {
			case err == nil:
			case !errors.Is(err, io.EOF):
				return err
			case !moved:
				return errors.New("the download was over before the client had moved")
			default:
				return file.Close()
			}
		}
	}
	if _, err := io.Copy(file, answer.Body); err != nil {
		return err
	}
	return errors.Join(file.Close(), conn.CloseWithError(0, ""))
}
