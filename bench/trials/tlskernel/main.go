//go:build linux

// Tlskernel kills and upgrades the worker of a penstock, again and again, under connections with TLS, and compares every byte of them with what
// its owner has sent. Those with TLS 1.3 are the kernel's, and go on whatever happens. Those with TLS 1.2 stay with the worker that has made their
// handshake: an upgrade ends none of them, nor does the death of a later worker.
//
//	go run ./bench/trials/tlskernel -kills 20 -upgrades 20
//
// It needs a kernel with TLS (modprobe tls); without it, it says so and fails. TLS ends at the relay, begins there, or both. The clients are those of
// Go and of other programs, see kinds. The next event comes as soon as each of them has exchanged something since the one before.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/websocket"

	"github.com/penstock/penstock/bench/internal/certs"
	"github.com/penstock/penstock/bench/internal/trial"
	"github.com/penstock/penstock/relay/hold"
)

type setup struct {
	trial.Run
	kills, upgrades int
	refused         int // of the upgrades
	each            int // of each kind
	every           time.Duration
	patience        time.Duration
	rustls          string // the program in the folder rustls

	pair      certs.Pair
	roots     *x509.CertPool
	authority string // the file of the certificate that roots has
	daemon    *trial.Daemon
	browsers  browsers
	ports     map[string]string // of listeners
	clients   []*client
	history   history
	beginning sync.RWMutex // read by a client until its connection has had its first exchange, so that no event comes in between
	begun     time.Time
	ids       atomic.Uint64 // of connections
	over      atomic.Bool
	moved     atomic.Int64 // exchanges
	bytes     atomic.Int64
	ended     atomic.Int64 // connections that a kill has ended, and may
	faults    atomic.Int64
}

func main() {
	s := &setup{browsers: browsers{all: map[string]*browser{}}}
	s.Flags(flag.CommandLine)
	flag.IntVar(&s.kills, "kills", 20, "how often the worker is killed")
	flag.IntVar(&s.upgrades, "upgrades", 20, "how often the daemon is upgraded to itself")
	flag.IntVar(&s.each, "flows", 4, "clients of each kind")
	clients := flag.String("clients", "*", "the kinds of clients, with commas between them; those of chromium need it installed")
	flag.DurationVar(&s.every, "every", 0, "time from when each client has exchanged something to the next event")
	flag.DurationVar(&s.patience, "patience", 30*time.Second, "how long an exchange, or the start of a worker, may take")
	flag.StringVar(&s.rustls, "rustls", "bin/tlspipe/release/tlspipe", "the `PROGRAM` that cargo has built in the folder rustls; if it is not there, rustls is left out")
	flag.Parse()
	_, err := os.Stat(s.rustls)
	for i := range kinds {
		for range s.each {
			if trial.Named(*clients, kinds[i].name) && (err == nil || !strings.HasPrefix(kinds[i].name, "rustls")) {
				s.clients = append(s.clients, &client{kind: &kinds[i]})
			}
		}
	}
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
	defer s.browsers.end()
	if err := s.start(); err != nil {
		return err
	}
	s.begun = time.Now()
	var all sync.WaitGroup
	inKernel := 0
	for _, c := range s.clients {
		if c.kind.kernel {
			inKernel++
		}
		all.Go(func() {
			if err := c.run(s); err != nil {
				s.fault("%v", err)
			}
		})
	}
	if err = s.inKernel(inKernel); err == nil {
		err = s.events()
	}
	if err == nil {
		err = s.inKernel(inKernel)
	}
	if err != nil || s.faults.Load() > 0 {
		s.describe()
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
	fmt.Fprintf(s.Out, "%d kills, %d upgrades (%d refused) in %v, %d clients of each kind, with TLS of the kernel: %v\n", s.kills, s.upgrades, s.refused,
		time.Since(s.begun).Round(time.Second), s.each, s.names(true))
	fmt.Fprintf(s.Out, "and of the worker: %v, of whose connections kills have ended %d\n", s.names(false), s.ended.Load())
	fmt.Fprintf(s.Out, "%d exchanges, %d bytes compared, %d faults\n", s.moved.Load(), s.bytes.Load(), s.faults.Load())
	if s.faults.Load() > 0 || s.moved.Load() == 0 {
		return fmt.Errorf("faults\n%s\n%s", stats, s.daemon.LogTail(40))
	}
	return nil
}

// names are those of the kinds of clients whose TLS the kernel has, or has not.
func (s *setup) names(kernel bool) (all []string) {
	for _, c := range s.clients {
		if c.kind.kernel == kernel {
			all = append(all, c.kind.name)
		}
	}
	return slices.Compact(all)
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
	web, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	go http.Serve(web, websocket.Server{Handler: func(ws *websocket.Conn) {
		ws.PayloadType = websocket.BinaryFrame
		s.upstream(ws)
	}})
	go s.serve(plain)
	go s.serve(tls.NewListener(secure, &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS13}))
	var client, upstream, both, browsers string
	if err := trial.Ports(&client, &upstream, &both, &browsers); err != nil {
		return err
	}
	s.ports = map[string]string{"client": client, "upstream": upstream, "both": both, "web": browsers}
	s.authority = authority.CA
	ends := fmt.Sprintf("tls: {certificates: [{certificate: %s, key: %s}], kernel: auto}", s.pair.Certificate, s.pair.Key)
	config := fmt.Sprintf(`keeper: {keep-after: 200ms, watchdog: 60s, start-timeout: 3m, healthy-after: 200ms, max-restart-delay: 100ms, max-lingering: 15}
engine: {loops: 2}
listeners:
  client: {listen: "tcp://127.0.0.1:%s", %s, to: plain}
  upstream: {listen: "tcp://127.0.0.1:%s", to: secure}
  both: {listen: "tcp://127.0.0.1:%s", %s, to: secure}
  web: {listen: "tcp://127.0.0.1:%s", %s, to: web}
groups:
  web: {members: ["tcp://%v"]}
  plain: {members: ["tcp://%v"]}
  secure: {members: ["tcp://%v"], tls: {ca: %s, server-name: %s, kernel: auto}}
`, client, ends, upstream, both, ends, browsers, ends, web.Addr(), plain.Addr(), secure.Addr(), authority.CA, certs.Name)
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
func (s *setup) inKernel(n int) error {
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

// flows calls f with what the daemon says of each flow.
func (s *setup) flows(f func(detail []byte) error) error {
	text, err := s.daemon.Get("/v1/flows")
	if err != nil {
		return err
	}
	var list struct {
		Flows []struct {
			ID string `json:"id"`
		} `json:"flows"`
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return err
	}
	for _, one := range list.Flows {
		detail, err := s.daemon.Get("/v1/flows/" + one.ID)
		if err != nil {
			continue // it has ended
		}
		if err := f(detail); err != nil {
			return err
		}
	}
	return nil
}

// describe prints all flows, for who looks for the one that stands still.
func (s *setup) describe() {
	err := s.flows(func(detail []byte) error {
		_, err := fmt.Fprintf(s.Out, "%s\n", detail)
		return err
	})
	if err != nil {
		fmt.Fprintf(s.Out, "flows: %v\n", err)
	}
	if out, err := exec.Command("ss", "-tinmO").CombinedOutput(); err == nil {
		fmt.Fprintf(s.Out, "%s\n", out)
	}
}

// given returns how many flows have no TLS but the kernel's.
func (s *setup) given() (n int, err error) {
	err = s.flows(func(detail []byte) error {
		type ends struct {
			Kernel bool `json:"kernel"`
		}
		var flow struct {
			Client   *ends `json:"client_tls"`
			Upstream *ends `json:"upstream_tls"`
		}
		if err := json.Unmarshal(detail, &flow); err != nil {
			return err
		}
		own := flow.Client != nil && !flow.Client.Kernel || flow.Upstream != nil && !flow.Upstream.Kernel
		if !own && (flow.Client != nil || flow.Upstream != nil) {
			n++
		}
		return nil
	})
	return n, err
}
