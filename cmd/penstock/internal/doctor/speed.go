package doctor

import (
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/penstock/penstock/dgram"
	"github.com/penstock/penstock/splice"
)

// speeds are the results of measuring on loopback; 0: not measured.
type speeds struct {
	spliced, copied  float64 // GB (10⁹ bytes) per second of one stream
	runs, gso, plain float64 // us per datagram of 1,200 bytes, sent and received: with GSO and GRO, with GSO alone, with neither
}

// Each of five measurements is repeated for rounds windows of time. The best result counts:
// other load on the machine disturbs it least.
const (
	rounds = 2
	window = 120 * time.Millisecond
)

func measure(progress func(string)) (s speeds, err error) {
	stream := func(what string, best *float64, cfg splice.Config) {
		progress(what)
		x, e := streamSpeed(&cfg)
		*best, err = max(*best, x), errors.Join(err, e)
	}
	datagrams := func(what string, best *float64, cfg dgram.Config) {
		progress(what)
		x, e := datagramCost(cfg)
		if *best == 0 || e == nil && x < *best {
			*best = x
		}
		err = errors.Join(err, e)
	}
	for range rounds {
		stream("splice", &s.spliced, splice.Config{})
		stream("copy", &s.copied, splice.Config{NoSplice: true})
		datagrams("GSO and GRO", &s.runs, dgram.Config{})
		datagrams("GSO", &s.gso, dgram.Config{NoGRO: true})
		datagrams("single datagrams", &s.plain, dgram.Config{NoGSO: true, NoGRO: true})
	}
	return s, err
}

// pair returns the two ends of a TCP connection over loopback. Its congestion control is reno: BBR
// and others pace on loopback too, and their timers would be measured.
func pair() (a, b net.Conn, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	defer l.Close()
	if a, err = net.Dial("tcp", l.Addr().String()); err != nil {
		return nil, nil, err
	}
	if b, err = l.Accept(); err != nil {
		a.Close()
		return nil, nil, err
	}
	for _, c := range []net.Conn{a, b} {
		if raw, err := c.(*net.TCPConn).SyscallConn(); err == nil {
			// A container may forbid it; the default is then measured.
			raw.Control(func(fd uintptr) { unix.SetsockoptString(int(fd), unix.SOL_TCP, unix.TCP_CONGESTION, "reno") })
		}
	}
	return a, b, nil
}

// streamSpeed copies for the window. All its goroutines have ended when it returns.
func streamSpeed(cfg *splice.Config) (gigabytes float64, err error) {
	from, src, err := pair()
	if err != nil {
		return 0, err
	}
	defer from.Close()
	defer src.Close()
	dst, to, err := pair()
	if err != nil {
		return 0, err
	}
	defer to.Close()
	defer dst.Close()
	start := time.Now()
	from.SetWriteDeadline(start.Add(window))
	src.SetReadDeadline(start.Add(10 * time.Second)) // the writer ends it long before
	ends := make(chan struct{}, 2)
	go func() {
		for b := make([]byte, 128<<10); ; {
			if _, err := from.Write(b); err != nil {
				break // the deadline
			}
		}
		from.Close()
		ends <- struct{}{}
	}()
	go func() {
		io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{to}, make([]byte, 128<<10))
		ends <- struct{}{}
	}()
	n, err := cfg.Copy(dst, src)
	took := time.Since(start)
	src.Close()
	dst.Close()
	<-ends
	<-ends
	return float64(n) / 1e9 / took.Seconds(), err
}

// datagramCost makes a socket send batches to itself and read them.
func datagramCost(cfg dgram.Config) (microseconds float64, err error) {
	const batch, size = 64, 1200
	c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return 0, err
	}
	defer c.Close()
	c.SetReadBuffer(4 << 20)
	d, err := dgram.New(c, cfg)
	if err != nil {
		return 0, err
	}
	out, in := make([]dgram.Message, batch), dgram.MakeMessages(batch)
	to, data := c.LocalAddr().(*net.UDPAddr).AddrPort(), make([]byte, size)
	for i := range out {
		out[i] = dgram.Message{Buf: data, Addr: to}
	}
	n, start := 0, time.Now()
	c.SetDeadline(start.Add(10 * time.Second))
	for time.Since(start) < window {
		if _, err := d.WriteBatch(out); err != nil {
			return 0, err
		}
		k, err := d.ReadBatch(in)
		if err != nil {
			return 0, err
		}
		for i := range in[:k] {
			for range in[i].Datagrams() {
				n++
			}
		}
	}
	return float64(time.Since(start).Microseconds()) / float64(n), nil
}

// minGain is the least gain for which a fast path is considered useful.
const minGain = 1.1

// speed reports what the fast paths gain on this machine.
func speed(s speeds, err error) (all []Finding) {
	if err != nil {
		all = append(all, Finding{Group: "speed", Name: "measured", Status: Warn, Found: "not all: " + err.Error()})
	}
	gain := func(name, found string, times float64, cost, fix string) {
		f := Finding{Group: "speed", Name: name, Status: OK, Found: fmt.Sprintf("%s: %.1f times", found, times)}
		if times < minGain {
			f.Status, f.Cost, f.Fix = Warn, cost, fix
		}
		all = append(all, f)
	}
	const again = "measure again on an idle machine; then see the kernel's rows above"
	if s.spliced > 0 && s.copied > 0 {
		gain("splice", fmt.Sprintf("%.1f GB/s spliced, %.1f GB/s copied", s.spliced, s.copied), s.spliced/s.copied,
			"splicing gains nothing in throughput here; it may still in CPU time", again)
	}
	if s.runs > 0 && s.plain > 0 {
		gain("GSO and GRO", fmt.Sprintf("%.2f us a datagram, %.2f us alone", s.runs, s.plain), s.plain/s.runs, "runs of datagrams gain nothing here", again)
	}
	if s.gso > 0 && s.plain > 0 {
		gain("GSO alone", fmt.Sprintf("%.2f us a datagram, %.2f us alone", s.gso, s.plain), s.plain/s.gso, "runs of datagrams gain nothing here", again)
	}
	return all
}
