//go:build linux

// Tlskernel kills and upgrades the worker of a penstock, again and again, changes its configuration, drains its members, and at last the daemon, under
// connections with TLS, and compares every byte of them with what its owner has sent. Those with TLS 1.3 are the kernel's, and go on whatever happens.
// Those with TLS 1.2, or over a Unix socket, stay with the worker that has made their handshake: an upgrade ends none of them, nor does the death of a
// later worker.
//
//	go run ./bench/trials/tlskernel -kills 20 -upgrades 20
//
// Somebody between the relay and its peers also attacks records around a kill, see records.go, and the memory of all processes, and on demand their
// core files, are searched for keys of connections that are the kernel's, see keys.go.
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
	counts   []int // of each of the events
	refused  int   // of the upgrades
	each     int   // of each kind
	every    time.Duration
	patience time.Duration
	user     string // that the worker runs as; "": this one
	rustls   string // the program in the folder rustls
	gcore    string // the program that makes core files; "": none are made

	pair      certs.Pair
	roots     *x509.CertPool
	authority string // the file of the certificate that roots has
	web       string // the address of the upstream of browsers
	daemon    *trial.Daemon
	browsers  browsers
	ports     map[string]string   // of listeners
	members   map[string][]string // the URLs of the groups' members, whose names are 0 and 1
	clients   []*client
	history   history
	keys      keyLogs
	maker     int          // the worker that has made the handshakes of what the kernel has
	owners    sync.Map     // the kind of each connection, by its number
	beginning sync.RWMutex // read by a client until its connection has had its first exchange, so that no event comes in between
	begun     time.Time

	cert             tls.Certificate
	attackedUpstream *net.TCPListener // of the flows that are attacked
	attacked         int              // how many there were

	// What events change.
	loops, idle int
	later       string // whether the kernel gets the TLS of later connections: auto or off
	drained     int    // the member that gets no new connections, once there was such an event

	ids    atomic.Uint64 // of connections
	over   atomic.Bool
	moved  atomic.Int64 // exchanges
	bytes  atomic.Int64
	ended  atomic.Int64 // connections that a kill has ended, and may
	faults atomic.Int64
}

func main() {
	s := &setup{browsers: browsers{all: map[string]*browser{}}}
	s.Flags(flag.CommandLine)
	s.counts = make([]int, len(kindsOfEvents))
	for i, e := range kindsOfEvents {
		flag.IntVar(&s.counts[i], e.name, e.most, "how often: "+e.what)
	}
	flag.StringVar(&s.user, "user", "", "begin the daemon as root, with this user for its worker (sandbox.user), and a listener that has port 443")
	flag.IntVar(&s.each, "flows", 4, "clients of each kind")
	clients := flag.String("clients", "*", "the kinds of clients, with commas between them; those of chromium need it installed")
	flag.DurationVar(&s.every, "every", 0, "time from when each client has exchanged something to the next event")
	flag.DurationVar(&s.patience, "patience", 30*time.Second, "how long an exchange, or the start of a worker, may take")
	flag.StringVar(&s.rustls, "rustls", "bin/tlspipe/release/tlspipe", "the `PROGRAM` that cargo has built in the folder rustls; if it is not there, rustls is left out")
	flag.StringVar(&s.gcore, "gcore", "", "also search core files, which this `PROGRAM` of gdb makes; it stops each process for some seconds")
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
		err = s.search()
	}
	if err == nil {
		err = s.events()
	}
	if err == nil {
		err = s.inKernel(inKernel)
	}
	if err != nil || s.faults.Load() > 0 {
		s.describe()
	}
	stats, err2 := s.daemon.Get("/v1/status")
	if err == nil {
		err = err2
	}
	if err2 := s.end(&all); err == nil {
		err = err2
	}
	if err != nil {
		return fmt.Errorf("%w\n%s", err, s.daemon.LogTail(20))
	}
	fmt.Fprintf(s.Out, "%s (%d upgrades refused) in %v, and the end of the daemon; %d clients of each kind, with TLS of the kernel: %v\n", s.happened(), s.refused,
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
	s.cert, err = tls.LoadX509KeyPair(s.pair.Certificate, s.pair.Key)
	if err != nil {
		return err
	}
	web, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	go http.Serve(web, websocket.Server{Handler: func(ws *websocket.Conn) {
		ws.PayloadType = websocket.BinaryFrame
		s.upstream(ws, new(keyLog))
	}})
	s.web = web.Addr().String()
	attacked, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s.attackedUpstream = attacked.(*net.TCPListener)
	s.members = map[string][]string{}
	for i := range 2 {
		plain, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		secure, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		path := s.socket(fmt.Sprintf("member-%d", i))
		unix, err := net.Listen("unix", path)
		if err == nil {
			err = os.Chmod(path, 0o777)
		}
		if err != nil {
			return err
		}
		go s.serve(plain, nil)
		go s.serve(unix, nil)
		go s.serve(secure, &tls.Config{Certificates: []tls.Certificate{s.cert}, MinVersion: tls.VersionTLS13})
		s.members["plain"] = append(s.members["plain"], "tcp://"+plain.Addr().String())
		s.members["secure"] = append(s.members["secure"], "tcp://"+secure.Addr().String())
		s.members["unix"] = append(s.members["unix"], "unix://"+path)
	}
	var client, upstream, both, browsers, socket, attackedClient, attackedUpstream string
	if err := trial.Ports(&client, &upstream, &both, &browsers, &socket, &attackedClient, &attackedUpstream); err != nil {
		return err
	}
	if s.user != "" {
		client = "443"
		if err := os.Chmod(s.Dir, 0o755); err != nil { // the worker may enter it
			return err
		}
	}
	s.ports = map[string]string{"client": client, "upstream": upstream, "both": both, "web": browsers, "unix": socket,
		"attacked-client": attackedClient, "attacked-upstream": attackedUpstream}
	s.authority = authority.CA
	s.loops, s.later = 2, "auto"
	dir := filepath.Join(s.Dir, "daemon")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	s.daemon = trial.DaemonAt(s.Penstock, dir, "run", "-c", filepath.Join(dir, "penstock.yaml"))
	if err = s.write(); err == nil {
		err = s.daemon.Begin()
	}
	if err == nil {
		err = s.daemon.Ready(s.patience)
	}
	return err
}

// socket returns the path of a Unix socket.
func (s *setup) socket(name string) string { return filepath.Join(s.Dir, name) }

// config returns the daemon's configuration.
func (s *setup) config() string {
	own := fmt.Sprintf("tls: {certificates: [{certificate: %s, key: %s}], kernel: ", s.pair.Certificate, s.pair.Key)
	ends := own + s.later + "}"
	attacked := s.attackedUpstream.Addr()
	group := func(name string) string {
		return fmt.Sprintf("members: [{name: \"0\", to: %q}, {name: \"1\", to: %q}]", s.members[name][0], s.members[name][1])
	}
	sandbox := ""
	if s.user != "" {
		sandbox = fmt.Sprintf("sandbox: {user: %s}\n", s.user)
	}
	return fmt.Sprintf(`keeper: {keep-after: 200ms, watchdog: 60s, start-timeout: 3m, healthy-after: 200ms, max-restart-delay: 100ms, max-lingering: 15}
engine: {loops: %d}
drain: 10m
defaults: {timeouts: {idle: %dm}}
%sadmin: {listen: "unix://%s"}
listeners:
  client: {listen: "tcp://127.0.0.1:%s", %s, to: plain}
  upstream: {listen: "tcp://127.0.0.1:%s", to: secure}
  both: {listen: "tcp://127.0.0.1:%s", %s, to: secure}
  web: {listen: "tcp://127.0.0.1:%s", %s, to: web}
  unix: {listen: "tcp://127.0.0.1:%s", %s, to: unix}
  over-unix: {listen: "unix://%s", %s, to: plain}
  attacked-client: {listen: "tcp://127.0.0.1:%s", %sauto}, to: "tcp://%v"}
  attacked-upstream: {listen: "tcp://127.0.0.1:%s", to: attacked}
groups:
  web: {members: ["tcp://%s"]}
  plain: {%s}
  unix: {%s}
  secure: {%s, tls: {ca: %s, server-name: %s, kernel: %s}}
  attacked: {members: ["tcp://%v"], tls: {ca: %s, server-name: %s, kernel: auto}}
`, s.loops, 60+s.idle, sandbox, filepath.Join(s.daemon.Dir, "admin"), s.ports["client"], ends, s.ports["upstream"], s.ports["both"], ends, s.ports["web"], ends,
		s.ports["unix"], ends, s.socket("over-unix"), ends, s.ports["attacked-client"], own, attacked, s.ports["attacked-upstream"], s.web, group("plain"), group("unix"), group("secure"), s.authority, certs.Name, s.later,
		attacked, s.authority, certs.Name)
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
