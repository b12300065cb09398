//go:build linux

package main

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/penstock/penstock/bench/internal/certs"
	"github.com/penstock/penstock/bench/internal/echo"
)

var versions = map[string]uint16{"tls1_2": tls.VersionTLS12, "tls1_3": tls.VersionTLS13}

// connect returns a connection whose handshake is done. The conn below it may be wrapped.
func (t *target) connect(version string, wrap func(net.Conn) net.Conn) (*tls.Conn, error) {
	roots, err := certs.Roots(t.authority.CA)
	if err != nil {
		return nil, err
	}
	raw, err := net.DialTimeout("tcp", t.addr, t.patience)
	if err != nil {
		return nil, err
	}
	raw.SetDeadline(time.Now().Add(t.patience))
	c := tls.Client(wrap(raw), &tls.Config{ServerName: certs.Name, RootCAs: roots, MinVersion: versions[version], MaxVersion: versions[version]})
	if err := c.Handshake(); err != nil {
		raw.Close()
		return nil, err
	}
	return c, nil
}

func asItIs(c net.Conn) net.Conn { return c }

// upHalf ends the client's direction after some megabytes.
func (t *target) upHalf(version string) error {
	c, err := t.connect(version, asItIs)
	if err != nil {
		return err
	}
	defer c.Close()
	const size = 3 << 20
	if _, err := c.Write(append([]byte(countWord), make([]byte, size)...)); err != nil {
		return err
	}
	if err := c.CloseWrite(); err != nil {
		return err
	}
	answer, err := io.ReadAll(c)
	if want := fmt.Sprintf("%d bytes\n", size); err != nil || string(answer) != want {
		return fmt.Errorf("the answer after the half-close is %q, %v; want %q", answer, err, want)
	}
	return nil
}

// downHalf goes on to send when the upstream's direction has ended.
func (t *target) downHalf(version string) error {
	c, err := t.connect(version, asItIs)
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := io.WriteString(c, firstWord); err != nil {
		return err
	}
	answer, err := io.ReadAll(c) // io.EOF needs close_notify: without it, crypto/tls says io.ErrUnexpectedEOF
	if err != nil || string(answer) != "first\n" {
		return fmt.Errorf("up to the end of the upstream's direction: %q, %w", answer, err)
	}
	const size = 1 << 20
	if _, err := c.Write(make([]byte, size)); err != nil {
		return fmt.Errorf("after the end of the other direction: %w", err)
	}
	if err := c.CloseWrite(); err != nil {
		return fmt.Errorf("after the end of the other direction: %w", err)
	}
	select {
	case n := <-t.upstream.counted:
		if n != size {
			return fmt.Errorf("after the end of its direction the upstream got %d of %d bytes", n, size)
		}
		return nil
	case <-time.After(t.patience):
		return errors.New("the upstream did not see the end of the client's direction")
	}
}

// A slow connection sends each byte by itself.
type slow struct{ net.Conn }

func (s slow) Write(p []byte) (int, error) {
	for i := range p {
		if _, err := s.Conn.Write(p[i : i+1]); err != nil {
			return i, err
		}
	}
	return len(p), nil
}

func (t *target) byteByByte(version string) error {
	c, err := t.connect(version, func(c net.Conn) net.Conn { return slow{c} })
	if err != nil {
		return err
	}
	defer c.Close()
	return echo.Ask(c, []byte("a message in many segments"))
}

// garbage sends what is no ClientHello, or not all of it.
func garbage(t *target) error {
	good := certs.Hello(&tls.Config{ServerName: certs.Name})
	for name, text := range map[string][]byte{
		"text":              []byte("GET / HTTP/1.1\r\nHost: relay.example\r\n\r\n"),
		"zeros":             make([]byte, 4096),
		"half a hello":      good[:len(good)/2],
		"a broken hello":    append(append([]byte{}, good[:60]...), bytes.Repeat([]byte{0xff}, len(good)-60)...),
		"application data":  append([]byte{23, 3, 3, 1, 0}, make([]byte, 256)...),
		"an alert":          {21, 3, 3, 0, 2, 2, 40},
		"an empty record":   {22, 3, 3, 0, 0},
		"a hello, then not": append(append([]byte{}, good...), bytes.Repeat([]byte{7}, 600)...),
	} {
		c, err := net.DialTimeout("tcp", t.addr, t.patience)
		if err != nil {
			return fmt.Errorf("before %s: %w", name, err)
		}
		c.SetDeadline(time.Now().Add(t.patience))
		c.Write(text)
		c.(*net.TCPConn).CloseWrite()
		_, err = io.Copy(io.Discard, c)
		c.Close()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return fmt.Errorf("after %s and the end of the stream, the relay did not end within %v", name, t.patience)
		}
	}
	return t.echoesNative()
}

// oversized sends a record with 2^14+2048+1 bytes after the handshake, which nothing allows (RFC 8446, 5.2; RFC 5246, 6.2.3).
func oversized(t *target) error {
	var raw net.Conn
	c, err := t.connect("tls1_3", func(c net.Conn) net.Conn { raw = c; return c })
	if err != nil {
		return err
	}
	defer c.Close()
	if err := echo.Ask(c, []byte("before")); err != nil {
		return err
	}
	const size = 1<<14 + 2048 + 1
	if _, err := raw.Write(append([]byte{23, 3, 3, size >> 8, size & 0xff}, make([]byte, size)...)); err != nil {
		return nil // already ended
	}
	if n, err := c.Read(make([]byte, 1)); err == nil {
		return fmt.Errorf("%d bytes came back", n)
	} else if errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("the relay did not end within %v", t.patience)
	}
	return t.echoesNative()
}

// echoesNative expects that the next client is served.
func (t *target) echoesNative() error {
	c, err := t.connect("tls1_3", asItIs)
	if err != nil {
		return fmt.Errorf("the next client: %w", err)
	}
	defer c.Close()
	if err := echo.Ask(c, []byte("next")); err != nil {
		return fmt.Errorf("the next client: %w", err)
	}
	return nil
}
