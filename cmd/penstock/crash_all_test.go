package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/testcerts"
	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
)

// everything is a daemon with everything that a worker makes new, in folders that only root may enter.
type everything struct {
	*steps
	pool  *x509.CertPool
	flows []net.Conn // one of each kind, which go on
}

// kinds are the listeners of everything, LOW is an address without a port. unixgram has its answers sent to a path. None of UDP has a
// privileged port, because with one the worker keeps the capability to bind them.
var kinds = []struct{ name, text string }{
	{"free", "{listen: 'tcp://127.0.0.1:0', to: 'echo:'}"},
	{"low", "{listen: 'tcp://LOW:81', to: 'echo:', backlog: 100, mode: '0600'}"},
	{"range", "{listen: 'tcp://LOW:82-84', to: 'echo:'}"},
	{"six", "{listen: 'tcp://[::1]:0', to: 'echo:'}"},
	{"name", "{listen: 'tcp://localhost:0', to: 'echo:'}"},
	{"options", "{listen: 'tcp://LOW:85', to: 'echo:', tcp: {congestion: reno, recv-buffer: 100KiB, send-buffer: 100KiB, keepalive: 10s, keepalive-interval: 5s, keepalive-count: 2, user-timeout: 9s, fast-open: 5, nagle: true}}"},
	{"interface", "{listen: 'tcp://LOW:86', interface: lo, to: 'echo:'}"},
	{"transparent", "{listen: 'tcp://LOW:87', transparent: true, to: 'echo:'}"},
	{"multipath", "{listen: 'tcp://LOW:88', tcp: {mptcp: true}, to: 'echo:'}"},
	{"member", "{listen: 'tcp://LOW:89', to: member}"},
	{"unix", "{listen: 'unix://{dir}/run/unix', mode: '0666', to: 'echo:'}"},
	{"abstract", "{listen: 'unix:@{dir}/abstract', to: 'echo:'}"},
	{"inherited", "{inherit: stream, to: 'echo:'}"},
	{"udp", "{listen: 'udp://LOW:1090', to: 'echo:'}"},
	{"udp-free", "{listen: 'udp://127.0.0.1:0', to: 'echo:'}"},
	{"udp-range", "{listen: 'udp://LOW:1091-1092', to: 'echo:'}"},
	{"udp-inherited", "{inherit: datagram, datagrams: true, to: 'echo:'}"},
	{"unixgram", "{listen: 'unixgram://{dir}/run/unixgram', mode: '0666', to: 'echo:'}"},
}

func startEverything(t *testing.T, sandbox string) *everything {
	address, dir := lowAddress(t), shortDir(t)
	low, _, err := net.SplitHostPort(address)
	for _, folder := range []string{"run", "log", "keys", "state"} {
		err = errors.Join(err, os.Mkdir(filepath.Join(dir, folder), 0o700))
	}
	err = errors.Join(err, os.Chmod(dir, 0o755), os.Chmod(dir+"/run", 0o755), os.Chmod(dir+"/state", 0o777))
	if err != nil {
		t.Fatal(err)
	}
	authority := testcerts.Authority(t, "authority")
	authority.Issue(t, "web.test").Write(t, dir+"/keys", "web")
	authority.Write(t, dir+"/keys", "ca")
	ca, _ := authority.Write(t, dir+"/run", "ca") // of a registry: the user reads it
	if err := os.Chmod(ca, 0o644); err != nil {
		t.Fatal(err)
	}
	member := speak(t, "member")
	var text strings.Builder
	text.WriteString("engine: {loops: 2}\nsandbox: {" + sandbox + "}\nkeeper: {keep-after: 0, max-restart-delay: 100ms, healthy-after: 1h}\n")
	text.WriteString("access-log: {to: '{dir}/log/access.log'}\nregistries: {e: {etcd: ['https://127.0.0.1:1'], tls: {ca: '{dir}/run/ca.pem'}}}\n")
	text.WriteString("groups:\n  member: {members: [{name: m, to: '{0}'}], check: {tcp: {every: 1h}}}\n  registry: {discover: [{etcd: /members}]}\n  secure: {members: ['{0}'], tls: {ca: '{dir}/keys/ca.pem', server-name: web.test}}\n")
	text.WriteString("listeners:\n  web: {listen: 'tcp://LOW:93', to: 'echo:', tls: {certificates: [{certificate: '{dir}/keys/web.pem', key: '{dir}/keys/web.key'}]}}\n  secure: {listen: 'tcp://LOW:94', to: secure}\n  registry: {listen: 'tcp://LOW:95', to: registry}\n")
	for _, kind := range kinds {
		text.WriteString("  " + kind.name + ": " + strings.ReplaceAll(kind.text, ", mode: '0600'", "") + "\n")
	}
	e := &everything{steps: &steps{kept: &kept{configured: &configured{dir: dir, file: dir + "/penstock.yaml"}}, held: dir + "/penstock.yaml"}, pool: authority.Pool()}
	e.write(t, strings.ReplaceAll(text.String(), "LOW", low), member.url())
	stream, datagram := inherited(t)
	cmd := exec.Command("sh", "-c", `LISTEN_PID=$$ LISTEN_FDS=2 LISTEN_FDNAMES=stream:datagram exec "$0" run -c "$1/penstock.yaml" --state "$1/state"`, binary, dir)
	cmd.ExtraFiles = []*os.File{stream, datagram}
	e.begin(t, cmd)
	e.endWorker(t)
	e.showLog()
	stream.Close()
	datagram.Close()
	testwait.Until(t, "the API answers", e.answers)
	if e.file, err = os.ReadFile(e.kept.file); err != nil {
		t.Fatal(err)
	}
	e.upgradable()
	return e
}

// inherited returns sockets for a daemon to inherit.
func inherited(t *testing.T) (stream, datagram *os.File) {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	u, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	stream, err = l.(*net.TCPListener).File()
	if err == nil {
		datagram, err = u.(*net.UDPConn).File()
	}
	if err != nil {
		t.Fatal(err)
	}
	return stream, datagram
}

// dial opens a flow to each listener that echoes, and checks it.
func (e *everything) dial() (flows []net.Conn) {
	e.t.Helper()
	l, err := e.admin.Listeners(e.ctx())
	if err != nil {
		e.t.Fatal(err)
	}
	for i := range l.Listeners {
		l := &l.Listeners[i]
		var c net.Conn
		switch {
		case l.Name == "web", l.Name == "secure", l.Name == "registry":
			continue
		case strings.HasPrefix(l.Address, "unixgram:"):
			c = e.dialGram(strings.TrimPrefix(l.Address, "unixgram://"))
		case strings.HasPrefix(l.Address, "udp:"):
			address, _, _ := strings.Cut(strings.TrimPrefix(l.Address, "udp://"), "-")
			c = dialUDP(e.t, address)
		default:
			address := l.Address
			if l.Name == "range" {
				address, _, _ = strings.Cut(address, "-")
			}
			c = testnet.Dial(e.t, netAddr(e.t, address))
		}
		if l.Name == "member" {
			if n := name(e.t, c); n != "member" {
				e.t.Errorf("%s: a client went to %q", l.Name, n)
			}
		}
		mustPing(e.t, c)
		flows = append(flows, c)
	}
	if len(flows) != len(kinds) {
		e.t.Fatalf("%d flows, want %d", len(flows), len(kinds))
	}
	return flows
}

var grams atomic.Int64

func (e *everything) dialGram(path string) net.Conn {
	e.t.Helper()
	own := fmt.Sprintf("%s/run/c%d", e.dir, grams.Add(1))
	c, err := net.DialUnix("unixgram", &net.UnixAddr{Net: "unixgram", Name: own}, &net.UnixAddr{Net: "unixgram", Name: path})
	if err == nil {
		err = os.Chmod(own, 0o666) // the worker sends there, whoever it is
	}
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(func() { c.Close() })
	return c
}

// serves checks that old flows go on, new ones begin, handshakes succeed, records are written, and a reload is done.
func (e *everything) serves() {
	e.t.Helper()
	for _, c := range e.flows {
		mustPing(e.t, c)
	}
	for _, c := range e.dial() {
		c.Close()
	}
	c := tls.Client(testnet.Dial(e.t, e.at("web")), &tls.Config{ServerName: "web.test", RootCAs: e.pool})
	mustPing(e.t, c)
	c.Close()
	log := e.dir + "/log/access.log"
	size := func() int64 {
		info, err := os.Stat(log)
		if err != nil {
			return -1
		}
		return info.Size()
	}
	before := size()
	d := testnet.Dial(e.t, e.at("low"))
	mustPing(e.t, d)
	d.Close()
	testwait.Until(e.t, "a record is written", func() bool { return size() > before })
	if err := os.Rename(log, log+".1"); err != nil {
		e.t.Fatal(err)
	}
	e.to(e.worker(), syscall.SIGUSR1)
	testwait.Until(e.t, "the log is opened again", func() bool { return size() >= 0 })
	if _, err := e.admin.Reload(e.ctx()); err != nil {
		e.t.Error(err)
	}
}

// Nothing that a worker after a crash makes new is refused in the sandbox of the one before, or the refusal is told, and the worker after it has
// all of it.
func TestCrashMakesEverythingAnew(t *testing.T) {
	needsSandbox(t)
	t.Parallel()
	for _, sandbox := range []string{"", "user: '65534:65534'"} {
		t.Run("sandbox={"+sandbox+"}", func(t *testing.T) {
			t.Parallel()
			e := startEverything(t, sandbox)
			e.flows = e.dial()
			e.holds(len(e.flows))
			e.serves()
			for i := range 2 {
				e.end(syscall.SIGKILL)
				if w := e.started(int64(i + 1)); w.Reason != "crash" || w.TotalLost() != 0 {
					t.Errorf("%+v", w)
				}
				e.serves()
			}
			e.mustHaveEverything()
			// And with more loops.
			e.signal(syscall.SIGUSR2)
			e.state("proving")
			testwait.Until(t, "there is one worker", func() bool { return e.worker() != 0 && e.answers() })
			e.file = bytes.Replace(e.file, []byte("loops: 2"), []byte("loops: 3"), 1)
			e.restoreFile()
			if _, err := e.admin.Reload(e.ctx()); err != nil {
				t.Fatal(err)
			}
			e.end(syscall.SIGKILL)
			e.line("this worker goes on without what it cannot have")
			e.serves()
			testwait.Until(t, "the worker with everything answers", func() bool {
				s, err := e.admin.Status(e.ctx())
				return err == nil && s.Keeper != nil && s.Keeper.Last.Reason == "restart" && len(s.Loops) == 3
			})
			e.serves()
			address, _, _ := net.SplitHostPort(e.at("low").String())
			for port := 81; port < 90; port++ {
				if n := sockets(t, fmt.Sprintf("%s:%d", address, port)); n != 3 {
					t.Errorf("%d sockets at port %d, want 3", n, port)
				}
			}
		})
	}
}

// What has changed on the host since a worker began does not keep the next one from starting: it goes on without, says so, and has it again as
// soon as it can be had.
func TestCrashGoesWithout(t *testing.T) {
	t.Parallel()
	for _, sandbox := range []string{"", "user: '65534:65534'"} {
		t.Run("sandbox={"+sandbox+"}", func(t *testing.T) {
			t.Parallel()
			if sandbox != "" {
				needsSandbox(t)
			}
			e := startEverything(t, sandbox)
			e.flows = e.dial()
			e.holds(len(e.flows))
			web, low, log, cert := e.at("web"), e.at("low"), e.dir+"/log/access.log", e.dir+"/keys/web.pem"
			good, err := os.ReadFile(cert)
			err = errors.Join(err, os.WriteFile(cert, []byte("broken"), 0o600), os.Rename(log, log+".1"), os.Mkdir(log, 0o700),
				os.Chmod(e.dir+"/run/unix", 0o600), os.Remove(e.dir+"/admin.sock"))
			if err != nil {
				t.Fatal(err)
			}
			e.end(syscall.SIGKILL)
			for _, c := range e.flows {
				mustPing(t, c)
			}
			handshake := func() error {
				c := tls.Client(testnet.Dial(t, web), &tls.Config{ServerName: "web.test", RootCAs: e.pool})
				defer c.Close()
				c.SetDeadline(time.Now().Add(patience))
				return c.Handshake()
			}
			if handshake() == nil {
				t.Error("a handshake succeeded without a certificate")
			}
			mustPing(t, testnet.Dial(t, low))
			e.goesWithout("listeners.web.tls: ")
			if sandbox != "" {
				e.goesWithout("admin.listen: ") // that user makes no socket in the folder
			}
			if err := errors.Join(os.WriteFile(cert, good, 0o600), os.Remove(log)); err != nil {
				t.Fatal(err)
			}
			testwait.Until(t, "a handshake succeeds", func() bool { return handshake() == nil })
			testwait.Until(t, "records are written", func() bool {
				c := testnet.Dial(t, low)
				mustPing(t, c)
				c.Close()
				info, err := os.Stat(log)
				return err == nil && info.Size() > 0
			})
			testwait.Until(t, "the API answers", e.answers)
			if s := e.status(t); (s.Keeper.Last.Reason == "restart") != (sandbox != "") {
				t.Errorf("%+v", s.Keeper.Last)
			}
			e.serves()
		})
	}
}

// goesWithout waits until the worker has said that it goes on without what begins with each of the texts.
func (e *everything) goesWithout(texts ...string) {
	e.t.Helper()
	for _, text := range texts {
		testwait.Until(e.t, "it goes on without "+text, func() bool {
			e.mu.Lock()
			defer e.mu.Unlock()
			return slices.ContainsFunc(e.lines, func(line map[string]any) bool {
				what, _ := line["error"].(string)
				return line["msg"] == "this worker goes on without what it cannot have" && strings.HasPrefix(what, text)
			})
		})
	}
}

// mustHaveEverything checks that nothing was refused so far.
func (k *kept) mustHaveEverything() {
	k.t.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, line := range k.lines {
		text := fmt.Sprint(line)
		if strings.Contains(text, "cannot watch the configuration files") && strings.Contains(text, "permission denied") {
			continue // as a user who may not read the folder: docs/sandbox.md
		}
		for _, bad := range []string{"cannot start", "goes on without", "permission denied", "not permitted", "in use"} {
			if strings.Contains(text, bad) {
				k.t.Errorf("%v", line)
			}
		}
	}
}
