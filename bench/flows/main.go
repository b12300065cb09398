//go:build linux

// Flows measures what many UDP flows cost the daemon, and how a flood from spoofed addresses
// affects existing flows.
//
//	go run ./bench/flows -flows 100000     # a soak test: every flow sends two requests
//	go run ./bench/flows -flood 3s         # 64 flows continue during a flood
//
// All clients share one socket, which sends from the addresses of 127.0.0.0/8 in turn (IP_PKTINFO);
// to the relay, each is a different client.
package main

import (
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/penstock/penstock/bench/internal/proc"
	"github.com/penstock/penstock/dgram"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "echo" {
		exit(echo())
	}
	flows := flag.Int("flows", 100_000, "flows in the soak test")
	flood := flag.Duration("flood", 3*time.Second, "how long the flood lasts")
	flag.Parse()
	exit(proc.InNamespace("reno", func() error { return run(*flows, *flood) }))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "flows:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// echo is the upstream, in its own process.
func echo() error {
	c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return err
	}
	fmt.Println(c.LocalAddr())
	d, err := dgram.New(c, dgram.Config{})
	if err != nil {
		return err
	}
	if _, err := d.SetReadBuffer(16 << 20); err != nil {
		return err
	}
	for ms := dgram.MakeMessages(64); ; {
		for i := range ms {
			ms[i].Buf = ms[i].Buf[:dgram.MaxSize]
		}
		n, err := d.ReadBatch(ms)
		if errors.Is(err, net.ErrClosed) {
			return err
		}
		for i := range ms[:n] {
			ms[i].Buf = ms[i].Buf[:ms[i].N]
			ms[i].Local = netip.Addr{}
		}
		for rest := ms[:n]; len(rest) > 0; {
			k, err := d.WriteBatch(rest)
			if err != nil {
				k++ // a flow that is gone
			}
			rest = rest[k:]
		}
	}
}

// child starts a process and returns the address that it prints on its first line.
func child(argv ...string) (line string, pid int, stop func(), err error) {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", 0, nil, err
	}
	if err := cmd.Start(); err != nil {
		return "", 0, nil, err
	}
	stop = func() { cmd.Process.Kill(); cmd.Wait() }
	if argv[1] == "echo" {
		_, err = fmt.Fscanln(out, &line)
	}
	return line, cmd.Process.Pid, stop, err
}

func run(flows int, flood time.Duration) error {
	files, err := proc.RaiseFiles(uint64(flows) + 50_000)
	if err != nil {
		return err
	}
	if most := files - 100; flows > most {
		fmt.Printf("soak: the limit of %d descriptors allows only %d of the %d flows\n", files, most, flows)
		flows = most
	}
	dir, err := os.MkdirTemp("", "penstock-flows-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	bin := filepath.Join(dir, "penstock")
	if out, err := exec.Command("go", "build", "-o", bin, "github.com/penstock/penstock/cmd/penstock").CombinedOutput(); err != nil {
		return fmt.Errorf("build penstock: %w\n%s", err, out)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if err := soak(self, bin, flows); err != nil {
		return fmt.Errorf("soak: %w", err)
	}
	for _, limit := range []string{"0", "1000"} {
		if err := duringFlood(self, bin, limit, flood); err != nil {
			return fmt.Errorf("flood: %w", err)
		}
	}
	return nil
}

// relay starts an upstream and the daemon in front of it.
func relay(self, bin string, flags ...string) (to netip.AddrPort, pid int, stop func(), err error) {
	upstream, _, stopEcho, err := child(self, "echo")
	if err != nil {
		return to, 0, nil, err
	}
	to = netip.MustParseAddrPort("127.0.0.1:7000")
	argv := append([]string{bin, "relay", "--loops", "1", "--log-level", "error"}, flags...)
	_, pid, stopRelay, err := child(append(argv, "udp://"+to.String(), "udp://"+upstream)...)
	stop = func() {
		if stopRelay != nil {
			stopRelay()
		}
		stopEcho()
	}
	time.Sleep(300 * time.Millisecond)
	return to, pid, stop, err
}

// clients is one socket that plays any number of clients.
type clients struct {
	*dgram.Conn
	sock *net.UDPConn
	ms   []dgram.Message
	back []dgram.Message
	to   netip.AddrPort
}

func newClients(to netip.AddrPort) (*clients, error) {
	sock, err := net.ListenUDP("udp4", &net.UDPAddr{})
	if err != nil {
		return nil, err
	}
	c, err := dgram.New(sock, dgram.Config{Local: true})
	if err != nil {
		return nil, err
	}
	if _, err := c.SetReadBuffer(16 << 20); err != nil {
		return nil, err
	}
	ms := make([]dgram.Message, 64)
	for i := range ms {
		ms[i].Buf = make([]byte, 64)
	}
	return &clients{Conn: c, sock: sock, ms: ms, back: dgram.MakeMessages(64), to: to}, nil
}

// address returns the address of client i, from 127.16.0.0 up.
func address(i int) netip.Addr {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], 127<<24+16<<16+uint32(i))
	return netip.AddrFrom4(b)
}

// ask makes the clients from first on send one datagram each, and waits for the replies.
func (c *clients) ask(first, n int) (answered int, err error) {
	for i := range n {
		m := &c.ms[i]
		m.Addr, m.Local = c.to, address(first+i)
		binary.BigEndian.PutUint32(m.Buf, uint32(first+i))
	}
	if _, err := c.WriteBatch(c.ms[:n]); err != nil {
		return 0, err
	}
	c.sock.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
	for answered < n {
		k, err := c.ReadBatch(c.back)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return answered, nil
		}
		if err != nil {
			return answered, err
		}
		for _, m := range c.back[:k] {
			if m.Local != address(int(binary.BigEndian.Uint32(m.Buf))) {
				return answered, fmt.Errorf("client %v got another client's reply", m.Local)
			}
			answered++
		}
	}
	return answered, nil
}

func soak(self, bin string, flows int) error {
	var sources []string
	for i := range flows/50_000 + 1 {
		sources = append(sources, "--source", fmt.Sprintf("127.0.1.%d", 1+i))
	}
	to, pid, stop, err := relay(self, bin, append(sources, "--idle-timeout", "10m", "--max-new-flows", "1000000", "--max-flows", fmt.Sprint(flows))...)
	if err != nil {
		return err
	}
	defer stop()
	c, err := newClients(to)
	if err != nil {
		return err
	}
	defer c.sock.Close()
	before, err := proc.RSS([]int{pid})
	if err != nil {
		return err
	}
	for pass := range 2 {
		start, answered := time.Now(), 0
		cpu, err := proc.CPU([]int{pid})
		if err != nil {
			return err
		}
		for i := 0; i < flows; i += len(c.ms) {
			n, err := c.ask(i, min(len(c.ms), flows-i))
			if err != nil {
				return err
			}
			answered += n
		}
		after, err := proc.CPU([]int{pid})
		if err != nil {
			return err
		}
		rss, err := proc.RSS([]int{pid})
		if err != nil {
			return err
		}
		files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
		if err != nil {
			return err
		}
		fmt.Printf("soak pass %d: %d flows, %d answered, %d descriptors, %.2f KB of RSS per flow, %.1f us of CPU per flow, %v\n", pass+1, flows, answered, len(files),
			float64(rss-before)/float64(flows), float64((after-cpu).Microseconds())/float64(flows), time.Since(start).Round(time.Millisecond))
	}
	return nil
}

// duringFlood keeps 64 flows busy, first alone and then during a flood of one-packet flows.
func duringFlood(self, bin, limit string, flood time.Duration) error {
	to, pid, stop, err := relay(self, bin, "--max-new-flows", limit, "--max-flows", "20000")
	if err != nil {
		return err
	}
	defer stop()
	c, err := newClients(to)
	if err != nil {
		return err
	}
	defer c.sock.Close()
	measure := func(what string, d time.Duration) error {
		var rounds []time.Duration
		asked, answered := 0, 0
		cpu, err := proc.CPU([]int{pid})
		if err != nil {
			return err
		}
		for end := time.Now().Add(d); time.Now().Before(end); {
			start := time.Now()
			n, err := c.ask(0, 64)
			if err != nil {
				return err
			}
			asked, answered = asked+64, answered+n
			rounds = append(rounds, time.Since(start))
		}
		after, err := proc.CPU([]int{pid})
		if err != nil {
			return err
		}
		slices.Sort(rounds)
		fmt.Printf("flood, limit of %s new flows per second, %s: %d requests, %.3f%% lost, round of 64 p50 %v p99 %v, relay busy %.0f%%\n", limit, what, asked,
			100*float64(asked-answered)/float64(asked), rounds[len(rounds)/2], rounds[len(rounds)*99/100], 100*(after-cpu).Seconds()/d.Seconds())
		return nil
	}
	if err := measure("alone", time.Second); err != nil {
		return err
	}
	done, sent := make(chan struct{}), make(chan int)
	// Created here, because only this thread is in the network namespace.
	flooder, err := newClients(to)
	if err != nil {
		return err
	}
	defer flooder.sock.Close()
	go flooder.spoof(done, sent)
	err = measure("during the flood", flood)
	close(done)
	fmt.Printf("flood: %d datagrams, each from a different address\n", <-sent)
	return err
}

// spoof sends one datagram from each of millions of addresses.
func (c *clients) spoof(done <-chan struct{}, sent chan<- int) {
	n := 0
	defer func() { sent <- n }()
	for {
		select {
		case <-done:
			return
		default:
		}
		for i := range c.ms {
			c.ms[i].Addr, c.ms[i].Local = c.to, address(1<<20+(n+i)%(8<<20))
		}
		if _, err := c.WriteBatch(c.ms); err != nil {
			fmt.Fprintln(os.Stderr, "flows:", err)
			return
		}
		n += len(c.ms)
		time.Sleep(300 * time.Microsecond) // about 150,000 per second
	}
}
