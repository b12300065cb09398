//go:build linux

// Tlskernel kills and upgrades the worker of a penstock, again and again, under connections with TLS 1.3 whose keys the kernel has, and compares
// every byte of them with what its owner has sent.
//
//	go run ./bench/trials/tlskernel -kills 20 -upgrades 20
//
// It needs a kernel with TLS (modprobe tls); without it, it says so and fails. TLS ends at the relay, begins there, or both.
package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/penstock/penstock/bench/internal/certs"
	"github.com/penstock/penstock/bench/internal/pattern"
	"github.com/penstock/penstock/bench/internal/proc"
	"github.com/penstock/penstock/bench/internal/trial"
	"github.com/penstock/penstock/relay/hold"
)

type setup struct {
	trial.Run
	kills, upgrades int
	refused         int // of the upgrades
	flows           int // of each kind
	every           time.Duration
	patience        time.Duration

	pair   certs.Pair
	roots  *x509.CertPool
	daemon *trial.Daemon
	ports  map[string]string // of listeners
	over   atomic.Bool
	moved  atomic.Int64 // exchanges
	bytes  atomic.Int64
	faults atomic.Int64
}

// kinds are where TLS is.
var kinds = []string{"client", "upstream", "both"}

func main() {
	s := &setup{}
	s.Flags(flag.CommandLine)
	flag.IntVar(&s.kills, "kills", 20, "how often the worker is killed")
	flag.IntVar(&s.upgrades, "upgrades", 20, "how often the daemon is upgraded to itself")
	flag.IntVar(&s.flows, "flows", 4, "connections of each kind")
	flag.DurationVar(&s.every, "every", time.Second, "time from when a worker relays to when it is killed")
	flag.DurationVar(&s.patience, "patience", 30*time.Second, "how long an exchange, or the start of a worker, may take")
	flag.Parse()
	trial.Main("tlskernel", s.run)
}

func (s *setup) run() error {
	if err := hold.CheckKernelTLS(); err != nil {
		return err
	}
	end, err := s.Begin(10_000)
	if err != nil {
		return err
	}
	defer end()
	if err := s.start(); err != nil {
		return err
	}
	var all sync.WaitGroup
	id := uint64(0)
	for _, kind := range kinds {
		for range s.flows {
			id++
			all.Go(func() {
				if err := s.client(kind, id); err != nil {
					s.fault("%s, connection %d: %v", kind, id, err)
				}
			})
		}
	}
	if err = s.inKernel(id); err == nil {
		err = s.events()
	}
	s.over.Store(true)
	all.Wait()
	if err != nil {
		return fmt.Errorf("%w\n%s", err, s.daemon.LogTail(20))
	}
	stats, err := s.daemon.Get("/v1/status")
	if err != nil {
		return err
	}
	if code, err := s.daemon.Stop(s.patience); code != 0 {
		return fmt.Errorf("the daemon ended with %d, %v\n%s", code, err, s.daemon.LogTail(20))
	}
	fmt.Fprintf(s.Out, "%d kills, %d upgrades (%d refused), %d connections of each kind of %v: %d exchanges, %d bytes compared, %d faults\n",
		s.kills, s.upgrades, s.refused, s.flows, kinds, s.moved.Load(), s.bytes.Load(), s.faults.Load())
	if s.faults.Load() > 0 || s.moved.Load() == 0 {
		return fmt.Errorf("faults\n%s\n%s", stats, s.daemon.LogTail(40))
	}
	return nil
}

func (s *setup) fault(format string, args ...any) {
	s.faults.Add(1)
	fmt.Fprintf(s.Out, "FAULT "+format+"\n", args...)
}

// start starts the upstreams and the daemon.
func (s *setup) start() error {
	authority, err := certs.New(s.Dir)
	if err != nil {
		return err
	}
	if s.pair, err = authority.Server("server", "ecdsa", certs.Name); err != nil {
		return err
	}
	s.roots = x509.NewCertPool()
	s.roots.AddCert(authority.Cert)
	cert, err := tls.LoadX509KeyPair(s.pair.Certificate, s.pair.Key)
	if err != nil {
		return err
	}
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	secure, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	go s.serve(plain)
	go s.serve(tls.NewListener(secure, &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS13}))
	var client, upstream, both string
	if err := trial.Ports(&client, &upstream, &both); err != nil {
		return err
	}
	s.ports = map[string]string{"client": client, "upstream": upstream, "both": both}
	ends := fmt.Sprintf("tls: {certificates: [{certificate: %s, key: %s}], min-version: \"1.3\", kernel: auto}", s.pair.Certificate, s.pair.Key)
	config := fmt.Sprintf(`keeper: {keep-after: 200ms, watchdog: 60s, start-timeout: 3m, healthy-after: 1s}
engine: {loops: 2}
listeners:
  client: {listen: "tcp://127.0.0.1:%s", %s, to: plain}
  upstream: {listen: "tcp://127.0.0.1:%s", to: secure}
  both: {listen: "tcp://127.0.0.1:%s", %s, to: secure}
groups:
  plain: {members: ["tcp://%v"]}
  secure: {members: ["tcp://%v"], tls: {ca: %s, server-name: %s, kernel: auto}}
`, client, ends, upstream, both, ends, plain.Addr(), secure.Addr(), authority.CA, certs.Name)
	dir := filepath.Join(s.Dir, "daemon")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	if s.daemon, err = trial.NewDaemon(s.Penstock, dir, config+fmt.Sprintf("admin: {listen: \"unix://%s/admin\"}\n", dir)); err != nil {
		return err
	}
	if err = s.daemon.Begin(); err == nil {
		err = s.daemon.Ready(s.patience)
	}
	return err
}

// inKernel waits until the kernel has the TLS of n flows: one that it has not ends with its worker, as it should.
func (s *setup) inKernel(n uint64) error {
	for end := time.Now().Add(s.patience); ; time.Sleep(100 * time.Millisecond) {
		given, err := s.given()
		switch {
		case err != nil:
			return err
		case given == n:
			fmt.Fprintf(s.Out, "the kernel has the TLS of %d flows\n", n)
			return nil
		case s.faults.Load() > 0:
			return nil
		case time.Now().After(end):
			return fmt.Errorf("the kernel has the TLS of %d flows, of %d, after %v", given, n, s.patience)
		}
	}
}

// given returns how many flows have no TLS but the kernel's.
func (s *setup) given() (n uint64, err error) {
	text, err := s.daemon.Get("/v1/flows")
	if err != nil {
		return 0, err
	}
	var list struct {
		Flows []struct {
			ID string `json:"id"`
		} `json:"flows"`
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return 0, err
	}
	for _, f := range list.Flows {
		text, err := s.daemon.Get("/v1/flows/" + f.ID)
		if err != nil {
			continue // it has ended
		}
		type ends struct {
			Kernel bool `json:"kernel"`
		}
		var detail struct {
			Client   *ends `json:"client_tls"`
			Upstream *ends `json:"upstream_tls"`
		}
		if err := json.Unmarshal(text, &detail); err != nil {
			return 0, err
		}
		own := detail.Client != nil && !detail.Client.Kernel || detail.Upstream != nil && !detail.Upstream.Kernel
		if !own && (detail.Client != nil || detail.Upstream != nil) {
			n++
		}
	}
	return n, nil
}

// events kills and upgrades, in turn.
func (s *setup) events() error {
	kills, upgrades := s.kills, s.upgrades
	for kills+upgrades > 0 {
		time.Sleep(s.every)
		if s.faults.Load() > 0 {
			return nil
		}
		before := s.daemon.Workers()
		if kills > 0 && (upgrades == 0 || rand.IntN(2) == 0) {
			kills--
			s.daemon.Signal(syscall.SIGKILL)
		} else {
			upgrades--
			steps, err := s.daemon.Ask("POST", "/v1/upgrade", fmt.Sprintf(`{"binary": %q}`, s.Penstock))
			if err != nil {
				return fmt.Errorf("upgrade: %w", err)
			}
			if bytes.Contains(steps, []byte(`"error":`)) { // the worker goes on, for which an emulated machine has reasons enough
				fmt.Fprintf(s.Out, "an upgrade was refused: %s\n", steps)
				s.refused++
				continue
			}
		}
		end := time.Now().Add(s.patience)
		for gone := false; !gone; time.Sleep(10 * time.Millisecond) {
			gone = true
			for _, pid := range before {
				gone = gone && !proc.Alive(pid)
			}
			if time.Now().After(end) {
				return fmt.Errorf("of the processes %v before, one has not ended; now there are %v", before, s.daemon.Workers())
			}
		}
		if err := s.daemon.Ready(s.patience); err != nil {
			return err
		}
	}
	time.Sleep(s.every)
	return nil
}

// An exchange is a head and bytes up, which the upstream answers with bytes down.
const headSize = 16

// sizes are those of an exchange, up and down: small ones mostly, and some that are spliced.
func sizes() (up, down int) {
	size := func() int {
		switch rand.IntN(8) {
		case 0:
			return 1<<20 + rand.IntN(1<<20)
		case 1:
			return rand.IntN(100 << 10)
		}
		return rand.IntN(2000)
	}
	return size(), size()
}

// client exchanges until the events are over, and ends well.
func (s *setup) client(kind string, id uint64) error {
	raw, err := net.Dial("tcp", "127.0.0.1:"+s.ports[kind])
	if err != nil {
		return err
	}
	defer raw.Close()
	conn := raw.(interface {
		net.Conn
		CloseWrite() error
	})
	if kind != "upstream" {
		conn = tls.Client(raw, &tls.Config{RootCAs: s.roots, ServerName: certs.Name})
	}
	var up, down int64
	for !s.over.Load() {
		conn.SetDeadline(time.Now().Add(s.patience))
		u, d := sizes()
		b := make([]byte, headSize+u)
		binary.BigEndian.PutUint64(b, id)
		binary.BigEndian.PutUint32(b[8:], uint32(u))
		binary.BigEndian.PutUint32(b[12:], uint32(d))
		pattern.Fill(b[headSize:], id, pattern.Up, up)
		if _, err := conn.Write(b); err != nil {
			return err
		}
		up += int64(u)
		if err := s.compare(conn, d, id, pattern.Down, &down); err != nil {
			return err
		}
		s.moved.Add(1)
		if rand.IntN(4) == 0 {
			time.Sleep(time.Duration(rand.IntN(300)) * time.Millisecond)
		}
	}
	conn.SetDeadline(time.Now().Add(s.patience))
	if err := conn.CloseWrite(); err != nil {
		return err
	}
	if n, err := io.Copy(io.Discard, conn); err != nil || n > 0 {
		return fmt.Errorf("%d bytes behind the last exchange, %w", n, err)
	}
	return nil
}

// compare reads n bytes and compares them with those of their owner.
func (s *setup) compare(from io.Reader, n int, id uint64, d pattern.Direction, offset *int64) error {
	b := make([]byte, n)
	if _, err := io.ReadFull(from, b); err != nil {
		return fmt.Errorf("%v at %d: %w", d, *offset, err)
	}
	if _, bad := pattern.Compare(b, make([]byte, n), id, d, *offset); bad != nil {
		return fmt.Errorf("%v at %d: %v", d, *offset, bad)
	}
	*offset += int64(n)
	s.bytes.Add(int64(n))
	return nil
}

// serve is the upstream.
func (s *setup) serve(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			if err := s.answer(conn); err != nil {
				s.fault("upstream: %v", err)
			}
		}()
	}
}

func (s *setup) answer(conn net.Conn) error {
	defer conn.Close()
	var up, down int64
	for {
		var head [headSize]byte
		if _, err := io.ReadFull(conn, head[:]); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		id := binary.BigEndian.Uint64(head[:])
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
