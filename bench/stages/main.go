//go:build linux

// Stages measures how reloads affect clients: there are many live flows, a configuration of 1,000
// routes that is replaced by another one again and again, and a constant rate of new connections.
// No flow may be cut and no client refused. It prints the longest turn of an event loop, with
// reloads and without.
//
//	go run ./bench/stages -flows 9000 -reloads 20
//
// The cost of the stages per connection is measured by bench/relay -peers stages,penstock.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/penstock/penstock/bench/internal/peer"
	"github.com/penstock/penstock/bench/internal/proc"
	"github.com/penstock/penstock/bench/internal/report"
	"github.com/penstock/penstock/internal/testport"
)

// window is the longest time for which the daemon remembers its longest turn.
const window = 30 * time.Second

// patience bounds each wait.
const patience = 20 * time.Second

func main() {
	flows := flag.Int("flows", 9000, "live flows")
	reloads := flag.Int("reloads", 20, "reloads")
	pace := flag.Duration("pace", 2*time.Millisecond, "time between new connections")
	flag.Parse()
	if err := run(*flows, *reloads, *pace); err != nil {
		fmt.Fprintln(os.Stderr, "stages:", err)
		os.Exit(1)
	}
}

// A bench is a daemon with its files, its upstream and its clients.
type bench struct {
	dir   string
	setup peer.Setup
	cmd   *exec.Cmd
	log   bytes.Buffer
	admin http.Client

	came   atomic.Int64 // new connections that were served during the run
	failed atomic.Int64
	last   atomic.Pointer[error]
}

func run(flows, reloads int, pace time.Duration) (err error) {
	if _, err := proc.RaiseFiles(1 << 17); err != nil {
		return err
	}
	b := &bench{}
	if b.dir, err = os.MkdirTemp("", "penstock-stages-"); err != nil {
		return err
	}
	defer os.RemoveAll(b.dir)
	bin := filepath.Join(b.dir, "penstock")
	if out, err := exec.Command("go", "build", "-o", bin, "github.com/penstock/penstock/cmd/penstock").CombinedOutput(); err != nil {
		return fmt.Errorf("build penstock: %w\n%s", err, out)
	}
	upstream, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer upstream.Close()
	go echo(upstream)
	port, release, err := testport.Reserve()
	if err != nil {
		return err
	}
	defer release()
	b.setup = peer.Setup{Listen: net.JoinHostPort("127.0.7.1", port), Upstream: upstream.Addr().String(), Dir: b.dir}
	b.admin = http.Client{Timeout: patience, Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(b.dir, "admin.sock"))
	}}}
	if err := b.start(bin); err != nil {
		return err
	}
	defer b.cmd.Wait()
	defer b.cmd.Process.Kill()
	if err := b.measure(flows, reloads, pace); err != nil {
		return fmt.Errorf("%w\nthe daemon printed: %s", err, b.log.Bytes())
	}
	return nil
}

// echo serves echoes until l is closed.
func echo(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			var buf [64]byte
			for {
				n, err := c.Read(buf[:])
				if err != nil {
					return
				}
				c.Write(buf[:n])
			}
		}()
	}
}

// write replaces the configuration by one whose routes lead to a group.
func (b *bench) write(group string) error {
	text := peer.StagesConfig(b.setup, group) + fmt.Sprintf("admin: {listen: \"unix://%s/admin.sock\"}\n", b.dir)
	file := filepath.Join(b.dir, "stages.yaml")
	return errors.Join(os.WriteFile(file+".next", []byte(text), 0o644), os.Rename(file+".next", file))
}

func (b *bench) start(bin string) error {
	if err := b.write("even"); err != nil {
		return err
	}
	b.cmd = exec.Command(bin, "run", "-c", filepath.Join(b.dir, "stages.yaml"))
	b.cmd.Stderr = &b.log
	b.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := b.cmd.Start(); err != nil {
		return err
	}
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		if _, err := b.status(); err == nil {
			return nil
		} else if time.Now().After(end) {
			return err
		}
	}
}

// status is the part of the daemon's answer that is used.
type status struct {
	Hash   string `json:"config_hash"`
	Totals struct {
		Flows, Refused, Failed int64
	}
	Loops []struct {
		Longest float64
	}
}

func (s *status) longest() time.Duration {
	var most float64
	for _, l := range s.Loops {
		most = max(most, l.Longest)
	}
	return time.Duration(most * float64(time.Second))
}

func (b *bench) status() (s status, err error) {
	resp, err := b.admin.Get("http://localhost/v1/status")
	if err != nil {
		return s, err
	}
	defer resp.Body.Close()
	return s, json.NewDecoder(resp.Body).Decode(&s)
}

func (b *bench) measure(flows, reloads int, pace time.Duration) error {
	if err := report.Machine(os.Stdout); err != nil {
		return err
	}
	fmt.Printf("live-flows: %d\nroutes: %d\nreloads: %d\nnew connection every: %v\n\n", flows, peer.Routes, reloads, pace)
	var live []net.Conn
	for range flows {
		c, err := net.Dial("tcp", b.setup.Listen)
		if err == nil {
			err = ping(c)
		}
		if err != nil {
			return fmt.Errorf("flow %d: %w", len(live), err)
		}
		live = append(live, c)
	}
	stop := make(chan struct{})
	var load sync.WaitGroup
	load.Go(func() { b.visit(pace, stop) })
	time.Sleep(window + time.Second)
	before, err := b.status()
	if err != nil {
		return err
	}
	var took []time.Duration
	for i := range reloads {
		d, err := b.reload([]string{"odd", "even"}[i%2])
		if err != nil {
			return fmt.Errorf("reload %d: %w", i+1, err)
		}
		took = append(took, d)
		time.Sleep(window / 3 / time.Duration(reloads))
	}
	after, err := b.status()
	if err != nil {
		return err
	}
	close(stop)
	load.Wait()
	lost := 0
	for _, c := range live {
		if ping(c) != nil {
			lost++
		}
	}
	slices.Sort(took)
	fmt.Printf("flows cut: %d of %d\n", lost, flows)
	fmt.Printf("new connections: %d served, %d refused or failed\n", b.came.Load(), b.failed.Load())
	fmt.Printf("the daemon counts: %d open, %d refused, %d failed\n", after.Totals.Flows, after.Totals.Refused, after.Totals.Failed)
	fmt.Printf("a reload, from the signal until it is active: median %v, longest %v\n", took[len(took)/2], took[len(took)-1])
	fmt.Printf("longest turn of a loop: %v with reloads, %v without\n", after.longest(), before.longest())
	if e := b.last.Load(); e != nil {
		return *e
	}
	if lost > 0 {
		return errors.New("flows were cut")
	}
	return nil
}

// reload activates the configuration of a group, and waits until the daemon reports it.
func (b *bench) reload(group string) (time.Duration, error) {
	was, err := b.status()
	if err != nil {
		return 0, err
	}
	if err := b.write(group); err != nil {
		return 0, err
	}
	began := time.Now()
	if err := b.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		return 0, err
	}
	for {
		s, err := b.status()
		switch {
		case err != nil:
			return 0, err
		case s.Hash != was.Hash:
			return time.Since(began), nil
		case time.Since(began) > patience:
			return 0, errors.New("the new configuration is not active")
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// visit makes a connection every pace.
func (b *bench) visit(pace time.Duration, stop <-chan struct{}) {
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		c, err := net.Dial("tcp", b.setup.Listen)
		if err == nil {
			err = ping(c)
			c.Close()
		}
		if err != nil {
			b.failed.Add(1)
			b.last.Store(&err)
			continue
		}
		b.came.Add(1)
	}
}

func ping(c net.Conn) error {
	c.SetDeadline(time.Now().Add(patience))
	msg := []byte("ping")
	if _, err := c.Write(msg); err != nil {
		return err
	}
	_, err := io.ReadFull(c, msg)
	return err
}
