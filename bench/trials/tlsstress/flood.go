//go:build linux

package main

import (
	"crypto/rand"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/penstock/penstock/bench/internal/certs"
	"github.com/penstock/penstock/bench/internal/child"
	"github.com/penstock/penstock/bench/internal/peer"
	"github.com/penstock/penstock/bench/internal/world"
)

// attacks are what the clients of a flood do, in the order of the table. Each is a connection from an address of its own; it returns when it is over.
var attacks = []struct {
	name, what string
	run        func(c net.Conn, hello []byte, over <-chan struct{})
}{
	{"hello", "a ClientHello, and a reset as soon as the relay has answered", func(c net.Conn, hello []byte, _ <-chan struct{}) {
		c.Write(hello)
		c.Read(make([]byte, 1))
		c.(*net.TCPConn).SetLinger(0)
	}},
	{"silent", "a ClientHello, and nothing more, as long as the relay waits", func(c net.Conn, hello []byte, over <-chan struct{}) {
		c.Write(hello)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			io.Copy(io.Discard, struct{ io.Reader }{c})
		}()
		select {
		case <-over:
		case <-ended:
		}
		c.(*net.TCPConn).SetLinger(0)
	}},
	{"full", "a whole handshake, and the end", func(c net.Conn, _ []byte, _ <-chan struct{}) {
		secure := tls.Client(c, &tls.Config{ServerName: certs.Name, InsecureSkipVerify: true, CurvePreferences: []tls.CurveID{tls.X25519}})
		secure.Handshake()
		c.(*net.TCPConn).SetLinger(0)
	}},
	{"garbage", "a header of a record, and random bytes", func(c net.Conn, _ []byte, _ <-chan struct{}) {
		b := make([]byte, 300)
		rand.Read(b)
		c.Write(append([]byte{22, 3, 1, 1, 39, 1, 0, 1, 35, 3, 3}, b...))
		c.Read(make([]byte, 1))
		c.(*net.TCPConn).SetLinger(0)
	}},
}

// floodCases are the names of the cases.
func floodCases() (names []string) {
	for _, a := range attacks {
		names = append(names, "flood/"+a.name)
	}
	return names
}

// crowd is how many clients of a flood are under way at once. Those that are silent are all that there may be.
const (
	crowd       = 64
	silentCrowd = 4096
)

// A floodCase is what the child that floods is told.
type floodCase struct{ Name, Addr string }

// flood floods an address until its standard input ends. It prints how many clients there were.
func flood(f *floodCase) error {
	hello := certs.Hello(&tls.Config{ServerName: certs.Name, CurvePreferences: []tls.CurveID{tls.X25519}})
	var count atomic.Int64
	var all sync.WaitGroup
	over := make(chan struct{})
	for _, a := range attacks {
		n := crowd
		if a.name == "silent" {
			n = silentCrowd
		}
		for i := range n {
			if a.name != f.Name {
				break
			}
			all.Go(func() {
				for from := i + 1; ; from += n {
					select {
					case <-over:
						return
					default:
					}
					d := net.Dialer{Timeout: time.Second, LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 1+byte(from>>16%200), byte(from>>8), byte(from))}}
					d.KeepAlive = -1
					c, err := d.Dial("tcp", f.Addr)
					if err != nil {
						time.Sleep(time.Millisecond)
						continue
					}
					count.Add(1)
					c.SetDeadline(time.Now().Add(patience))
					a.run(c, hello, over)
					c.Close()
				}
			})
		}
	}
	io.Copy(io.Discard, os.Stdin)
	close(over)
	all.Wait()
	fmt.Println(count.Load())
	return nil
}

// startFlood starts the child with a low priority. The function that it returns ends it.
func startFlood(name, addr string) (end func() (count int, err error), err error) {
	cmd, err := child.Command("flood", floodCase{name, addr})
	if err != nil {
		return nil, err
	}
	nice, err := exec.LookPath("nice")
	if err != nil {
		return nil, err
	}
	cmd.Path, cmd.Args = nice, append([]string{"nice", "-n", "10"}, cmd.Args...)
	c, err := child.Start(cmd)
	if err != nil {
		return nil, err
	}
	return func() (int, error) {
		line, err := c.End()
		if err != nil {
			return 0, err
		}
		return strconv.Atoi(line)
	}, nil
}

// result is what is seen while a flood lasts, or none.
type result struct {
	secure, plain waits // of old connections
	fresh         waits // of new clients, up to the answer
	flooders      int
	cpu           time.Duration
	kb            int64 // at most
	length        time.Duration
}

// watch looks at everybody else for a while.
func (s *stress) watch(r *relay, old *world.Talkers, name string) (x result, err error) {
	before, err := r.use()
	if err != nil {
		return x, err
	}
	end := func() (int, error) { return 0, nil }
	if name != "" {
		if end, err = startFlood(name, r.secure); err != nil {
			return x, err
		}
	}
	old.Mark()
	fresh := s.newClients(r)
	begun := time.Now()
	for time.Since(begun) < s.length {
		time.Sleep(100 * time.Millisecond)
		if u, err := r.use(); err == nil {
			x.kb = max(x.kb, u.kb)
		}
	}
	x.length = time.Since(begun)
	after, err := r.use()
	if err != nil {
		return x, fmt.Errorf("%s has ended: %w", r.name, err)
	}
	x.secure, x.plain = read(old)
	x.fresh = fresh()
	x.cpu = after.cpu - before.cpu
	x.flooders, err = end()
	return x, err
}

// floods runs floods through relays, and prints a table.
func (s *stress) floods(names, relays []string) error {
	for _, a := range attacks {
		fmt.Fprintf(s.Out, "# flood/%s: each client sends %s\n", a.name, a.what)
	}
	fmt.Fprintf(s.Out, "# %v each, up to %d clients of a flood at once (%d of silent), %d old connections with TLS and %d without ask every 10 ms, a new client with TLS comes every 20 ms\n", s.length, crowd, silentCrowd, s.flows, s.flows)
	table := tabwriter.NewWriter(s.Out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "flood\trelay\tflooders/s\tCPU\tRSS MB\told, TLS: lost\tp50\tp99\tmax\told, plain: lost\tp50\tp99\tmax\tnew: lost\tof\tp50\tp99\tmax\t")
	for _, name := range append([]string{"none"}, names...) {
		for _, relay := range relays {
			if err := s.floodRow(table, strings.TrimPrefix(name, "flood/"), relay); err != nil {
				return fmt.Errorf("%s, %s: %w", relay, name, err)
			}
		}
	}
	return table.Flush()
}

func (s *stress) floodRow(table io.Writer, name, relay string) error {
	if relay != "penstock" && peer.Missing(relay) != nil {
		fmt.Fprintf(s.Out, "# %s is not installed\n", relay)
		return nil
	}
	r, err := s.start(relay, s.server.Certificate, s.server.Key)
	if err != nil {
		return err
	}
	defer r.stop()
	old, err := s.oldFlows(r)
	if err != nil {
		return err
	}
	defer old.Stop()
	flood := name
	if name == "none" {
		flood = ""
	}
	x, err := s.watch(r, old, flood)
	if err != nil {
		return err
	}
	rate := float64(x.flooders) / x.length.Seconds()
	fmt.Fprintf(table, "%s\t%s\t%.0f\t%.2f\t%d\t%d\t%s\t%d\t%s\t%d\t%d\t%s\t\n", name, relay, rate, x.cpu.Seconds()/x.length.Seconds(), x.kb>>10,
		x.secure.lost, x.secure.text(), x.plain.lost, x.plain.text(), x.fresh.lost, x.fresh.lost+len(x.fresh.all), x.fresh.text())
	return r.intact()
}
