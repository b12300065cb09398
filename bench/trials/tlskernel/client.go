//go:build linux

package main

import (
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/bench/internal/certs"
	"github.com/penstock/penstock/bench/internal/pattern"
)

// conn is a client's connection, whose directions end one by one.
type conn interface {
	io.ReadWriteCloser
	SetDeadline(t time.Time) error
	CloseWrite() error
}

// kind says where TLS is, and whose it is at the client.
type kind struct {
	name     string
	listener string
	kernel   bool // the kernel has its TLS, so that no kill ends it
	dial     func(s *setup, address string) (conn, error)
}

var kinds = []kind{
	{"upstream", "upstream", true, dialPlain},
	{"go", "client", true, dialGo(tls.VersionTLS13)},
	{"both", "both", true, dialGo(tls.VersionTLS13)},
	{"openssl", "client", true, dialOpenSSL("-tls1_3")},
	{"go-1.2", "client", false, dialGo(tls.VersionTLS12)},
	{"both-1.2", "both", false, dialGo(tls.VersionTLS12)},
	{"openssl-1.2", "client", false, dialOpenSSL("-tls1_2")},
	{"rustls", "client", true, dialRustls("1.3")},
	{"rustls-1.2", "client", false, dialRustls("1.2")},
	{"unix", "unix", true, dialGo(tls.VersionTLS13)}, // to a member that is a Unix socket
	{"over-unix", "over-unix", false, dialUnix},      // TLS over a Unix socket, which the kernel does not have
	{"chromium", "web", true, dialBrowser("tls1.3")},
	{"chromium-1.2", "web", false, dialBrowser("tls1.2")},
}

func dialPlain(_ *setup, address string) (conn, error) {
	raw, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	return raw.(*net.TCPConn), nil
}

func dialUnix(s *setup, _ string) (conn, error) {
	raw, err := net.Dial("unix", s.socket("over-unix"))
	if err != nil {
		return nil, err
	}
	return tls.Client(strict{raw}, &tls.Config{RootCAs: s.roots, ServerName: certs.Name, KeyLogWriter: s.keys.add(new(keyLog))}), nil
}

func dialGo(version uint16) func(s *setup, address string) (conn, error) {
	return func(s *setup, address string) (conn, error) {
		raw, err := net.Dial("tcp", address)
		if err != nil {
			return nil, err
		}
		log := s.keys.add(&keyLog{kernel: version == tls.VersionTLS13})
		return tls.Client(strict{raw}, &tls.Config{RootCAs: s.roots, ServerName: certs.Name, MinVersion: version, MaxVersion: version, KeyLogWriter: log}), nil
	}
}

// client has one connection after another, of a kind.
type client struct {
	kind      *kind
	exchanges atomic.Int64
}

// run exchanges until the events are over, and ends well. With TLS of the worker it has one connection after another, so that each worker has
// some, and a kill may end one.
func (c *client) run(s *setup) error {
	for first := true; first || !s.over.Load(); first = false {
		id := s.ids.Add(1)
		events, err := c.connection(s, id)
		switch {
		case err == nil:
		case c.kind.kernel || errors.Is(err, errWrong) || !s.history.firstKilled(events):
			return fmt.Errorf("%s, connection %d, which began after %d events of %d: %w", c.kind.name, id, events, s.history.len(), err)
		default:
			s.ended.Add(1)
		}
	}
	return nil
}

// An exchange is a head and bytes up, which the upstream answers with bytes down.
const headSize = 16

// sizes are those of an exchange, up and down: small ones mostly, and some that are spliced.
func sizes() (up, down int) {
	size := func() int {
		switch rand.IntN(16) {
		case 0:
			return 256<<10 + rand.IntN(512<<10)
		case 1:
			return rand.IntN(100 << 10)
		}
		return rand.IntN(2000)
	}
	return size(), size()
}

// lasting is how many exchanges a connection with TLS of the worker has.
const lasting = 40

// connection exchanges over one connection, and says how many events there had been when it began.
func (c *client) connection(s *setup, id uint64) (events int, err error) {
	s.beginning.RLock()
	began := sync.OnceFunc(s.beginning.RUnlock)
	defer began()
	events = s.history.len()
	s.owners.Store(id, c.kind)
	if s.over.Load() && c.exchanges.Load() > 0 {
		return events, nil
	}
	conn, err := c.kind.dial(s, "127.0.0.1:"+s.ports[c.kind.listener])
	if err != nil {
		return events, err
	}
	defer conn.Close()
	var up, down int64
	for n := 0; !s.over.Load() && (c.kind.kernel || n < lasting); n++ {
		conn.SetDeadline(time.Now().Add(s.patience))
		u, d := sizes()
		b := make([]byte, headSize+u)
		binary.BigEndian.PutUint64(b, id)
		binary.BigEndian.PutUint32(b[8:], uint32(u))
		binary.BigEndian.PutUint32(b[12:], uint32(d))
		pattern.Fill(b[headSize:], id, pattern.Up, up)
		if _, err := conn.Write(b); err != nil {
			return events, err
		}
		up += int64(u)
		if err := s.compare(conn, d, id, pattern.Down, &down); err != nil {
			return events, err
		}
		began()
		s.moved.Add(1)
		c.exchanges.Add(1)
		time.Sleep(time.Duration(rand.IntN(1000)) * time.Millisecond) // a worker needs the processor, too, to start
	}
	conn.SetDeadline(time.Now().Add(s.patience))
	if err := conn.CloseWrite(); err != nil {
		return events, err
	}
	if n, err := io.Copy(io.Discard, conn); err != nil || n > 0 {
		return events, fmt.Errorf("%d bytes behind the last exchange, %w", n, err)
	}
	return events, nil
}

// errWrong is the error of bytes that are not their owner's.
var errWrong = errors.New("wrong bytes")

// compare reads n bytes and compares them with those of their owner.
func (s *setup) compare(from io.Reader, n int, id uint64, d pattern.Direction, offset *int64) error {
	b := make([]byte, n)
	if _, err := io.ReadFull(from, b); err != nil {
		return fmt.Errorf("%v at %d: %w", d, *offset, err)
	}
	if _, bad := pattern.Compare(b, make([]byte, n), id, d, *offset); bad != nil {
		return fmt.Errorf("%w: %v at %d: %s", errWrong, d, *offset, bad.Text)
	}
	*offset += int64(n)
	s.bytes.Add(int64(n))
	return nil
}

// serve is the upstream, with TLS if there is a configuration.
func (s *setup) serve(l net.Listener, secure *tls.Config) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		log := new(keyLog)
		if secure != nil {
			own := secure.Clone()
			own.KeyLogWriter = log
			conn = tls.Server(strict{conn}, own)
		}
		go s.upstream(conn, log)
	}
}

// upstream has one connection. What is the kernel's ends well, and before the client sees the end of the other direction. Another one that ends early
// is for its client to judge, who waits for an answer.
func (s *setup) upstream(conn io.ReadWriteCloser, log *keyLog) {
	defer conn.Close()
	if err := s.answer(conn, log); errors.Is(err, errWrong) || log.kernel && err != io.EOF {
		s.fault("upstream: %v", err)
	}
}

func (s *setup) answer(conn io.ReadWriteCloser, log *keyLog) error {
	var up, down int64
	owner := uint64(0)
	for {
		var head [headSize]byte
		if _, err := io.ReadFull(conn, head[:]); err != nil {
			return err
		}
		id := binary.BigEndian.Uint64(head[:])
		if owner == 0 {
			owner = id
			if of, ok := s.owners.Load(id); ok {
				log.kernel = of.(*kind).kernel
				s.keys.add(log)
			}
		} else if id != owner {
			return fmt.Errorf("%w: a head of connection %d in connection %d", errWrong, id, owner)
		}
		if err := s.compare(conn, int(binary.BigEndian.Uint32(head[8:])), id, pattern.Up, &up); err != nil {
			return fmt.Errorf("of connection %d: %w", id, err)
		}
		b := make([]byte, binary.BigEndian.Uint32(head[12:]))
		pattern.Fill(b, id, pattern.Down, down)
		if _, err := conn.Write(b); err != nil {
			return fmt.Errorf("of connection %d: %w", id, err)
		}
		down += int64(len(b))
	}
}
