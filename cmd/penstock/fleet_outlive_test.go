package main

import (
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/testfleet"
	"github.com/penstock/penstock/internal/testwait"
)

// drainedText has the listeners whose end and new beginning differ: LOW is an address without a port.
const drainedText = `
registries: {main: {etcd: ["{0}"]}}
fleet: {etcd: /penstock/test, drain-grace: {1}}
sandbox: {{2}}
keeper: {keep-after: 0, max-restart-delay: 100ms, healthy-after: 0}
listeners:
  low: {listen: 'tcp://{3}:81', to: 'echo:'}
  free: {listen: 'tcp://127.0.0.1:0', to: 'echo:'}
  unix: {listen: 'unix://{dir}/unix', mode: '0666', to: 'echo:'}
  abstract: {listen: 'unix:@{dir}/abstract', to: 'echo:'}
  udp: {listen: 'udp://{3}:82', to: 'echo:'}
  udp-free: {listen: 'udp://127.0.0.1:0', to: 'echo:'}
`

// A drainedRelay is a relay of a fleet, with a flow of each listener.
type drainedRelay struct {
	*kept
	fleet *relays
	at    map[string]net.Addr
	flows []net.Conn
	died  int64
}

func startDrained(t *testing.T, grace, sandbox string) *drainedRelay {
	needsSandbox(t)
	low, _, _ := net.SplitHostPort(lowAddress(t))
	server := testfleet.Etcd(t)
	r := &drainedRelay{kept: &kept{configured: &configured{dir: shortDir(t)}}, at: map[string]net.Addr{}}
	r.fleet = &relays{T: t, etcd: server, url: "etcd://" + strings.TrimPrefix(server.URL, "http://") + "/penstock/test"}
	if err := os.Chmod(r.dir, 0o755); err != nil { // where only root makes sockets
		t.Fatal(err)
	}
	r.file = r.dir + "/penstock.yaml"
	r.write(t, drainedText, server.URL, grace, sandbox, low)
	r.begin(t, exec.Command(binary, "run", "-c", r.file, "--node", "r0"))
	r.endWorker(t)
	r.showLog()
	r.fleet.ready(1)
	l, err := r.admin.Listeners(r.ctx())
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range l.Listeners {
		r.at[l.Name] = netAddr(t, l.Address)
	}
	r.flows = r.dial()
	r.holds(len(r.flows))
	return r
}

// dial opens a flow to each listener, at the address that it had first.
func (r *drainedRelay) dial() (flows []net.Conn) {
	r.t.Helper()
	for name, at := range r.at {
		c, err := net.Dial(at.Network(), at.String())
		if err != nil {
			r.t.Fatalf("%s: %v", name, err)
		}
		r.t.Cleanup(func() { c.Close() })
		mustPing(r.t, c)
		flows = append(flows, c)
	}
	return flows
}

// open returns how many listeners serve new clients.
func (r *drainedRelay) open() (n int) {
	for _, at := range r.at {
		c, err := net.Dial(at.Network(), at.String())
		if err != nil {
			continue
		}
		b := []byte("open?")
		for end := time.Now().Add(patience); ; {
			c.SetDeadline(time.Now().Add(time.Second))
			if _, err = c.Write(b); err == nil {
				_, err = io.ReadFull(c, b)
			}
			if !errors.Is(err, os.ErrDeadlineExceeded) || at.Network() != "udp" || time.Now().After(end) {
				break
			} // the datagram was lost, or the relay is slow
		}
		c.Close()
		if err == nil {
			n++
		}
	}
	return n
}

func (r *drainedRelay) goOn() {
	r.t.Helper()
	for _, c := range r.flows {
		mustPing(r.t, c)
	}
}

// kill kills the worker. No flow is lost.
func (r *drainedRelay) kill() {
	r.t.Helper()
	r.died++
	r.end(syscall.SIGKILL)
	if w := r.started(r.died); w.Reason != "crash" || w.TotalLost() != 0 {
		r.t.Errorf("%+v", w)
	}
	r.goOn()
}

func (r *drainedRelay) drain() {
	r.t.Helper()
	r.fleet.good("drain", "r0")
	r.fleet.until("it is drained", func() bool { n := r.fleet.nodes(); return len(n) == 1 && n[0].State == "drained" })
}

// A relay that its fleet has drained stays drained in the next worker, and no flow is lost, those of UDP, whose listeners are closed,
// too. The end of the drain opens all listeners again, where a path cannot be made again in the sandbox by another worker.
func TestDrainedRelayDies(t *testing.T) {
	t.Parallel()
	for _, sandbox := range []string{"", "user: '65534:65534'"} {
		t.Run("sandbox={"+sandbox+"}", func(t *testing.T) {
			t.Parallel()
			r := startDrained(t, "0s", sandbox)
			r.drain()
			testwait.Until(t, "nobody is accepted", func() bool { return r.open() == 0 })
			r.kill()
			r.kill()
			if n := r.open(); n != 0 {
				t.Errorf("%d listeners are open after a crash", n)
			}
			r.fleet.good("undrain", "r0")
			testwait.Until(t, "the listeners are open", func() bool { return r.open() == len(r.at) })
			r.goOn()
			r.dial()
			if sandbox != "" {
				r.said("another worker is to take over")
			}
		})
	}
}

// A worker that dies before a drained relay has closed its listeners leaves them to the next one, which accepts until then.
func TestRelayDiesInDrainGrace(t *testing.T) {
	t.Parallel()
	r := startDrained(t, "1h", "user: '65534:65534'")
	r.drain()
	r.kill()
	r.dial()
	r.fleet.until("it is drained", func() bool { n := r.fleet.nodes(); return len(n) == 1 && n[0].State == "drained" })
	r.fleet.good("undrain", "r0", "--wait", fleetPatience.String())
	r.goOn()
	r.dial()
}
