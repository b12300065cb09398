//go:build linux

package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/penstock/penstock/bench/internal/certs"
)

// callers are the clients of the balance, in turn. Each returns an error if it should have been served and was not, or should not and was.
func (s *stress) callers(r *relay) (all []caller, err error) {
	client, err := s.authority.Client("client", "ecdsa", "spiffe://relay.example/client")
	if err != nil {
		return nil, err
	}
	pair, err := tls.LoadX509KeyPair(client.Certificate, client.Key)
	if err != nil {
		return nil, err
	}
	config := func(change func(*tls.Config)) *tls.Config {
		c := s.trusting()
		if change != nil {
			change(c)
		}
		return c
	}
	served := func(addr string, c *tls.Config) func() error { return func() error { return once(addr, c) } }
	refused := func(addr string, c *tls.Config) func() error {
		return func() error {
			if once(addr, c) == nil {
				return errors.New("it was served")
			}
			return nil
		}
	}
	old := func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 }
	cache := func(c *tls.Config) { c.ClientSessionCache = tls.NewLRUClientSessionCache(8) }
	hello := certs.Hello(s.trusting())
	return []caller{
		{"full, TLS 1.3", served(r.secure, config(nil))},
		{"full, TLS 1.2", served(r.secure, config(old))},
		{"resumed", served(r.secure, config(cache))},
		{"resumed, TLS 1.2", served(r.secure, config(func(c *tls.Config) { old(c); cache(c) }))},
		{"with a certificate", served(r.guarded, config(func(c *tls.Config) { c.Certificates = []tls.Certificate{pair} }))},
		{"without one", refused(r.guarded, config(nil))},
		{"another name", refused(r.secure, config(func(c *tls.Config) { c.ServerName, c.InsecureSkipVerify = "other.example", true }))},
		{"garbage", func() error {
			b := make([]byte, rand.IntN(600))
			for i := range b {
				b[i] = byte(rand.Uint32())
			}
			return cutOff(r.secure, append([]byte{22, 3, 1}, b...), false)
		}},
		{"plain text", func() error { return cutOff(r.secure, []byte("GET / HTTP/1.1\r\nHost: relay.example\r\n\r\n"), false) }},
		{"cut in its ClientHello", func() error { return cutOff(r.secure, hello[:rand.IntN(len(hello))], rand.IntN(2) == 0) }},
		{"leaves after it", func() error { return cutOff(r.secure, hello, rand.IntN(2) == 0) }},
		{"never goes on", func() error { return silent(r.secure, hello) }},
		{"cut later", func() error {
			// Up to the end of what it sends, and some of what it is sent.
			c, err := net.Dial("tcp", r.secure)
			if err != nil {
				return err
			}
			defer c.Close()
			c.SetDeadline(time.Now().Add(patience))
			secure := tls.Client(&cutting{Conn: c, left: int64(rand.IntN(2600))}, s.trusting())
			if secure.Handshake() == nil {
				ask(secure, patience)
			}
			if rand.IntN(2) == 0 {
				c.(*net.TCPConn).SetLinger(0)
			}
			return nil
		}},
	}, nil
}

type caller struct {
	name string
	call func() error
}

// cutting fails when so many bytes have passed, in both directions together.
type cutting struct {
	net.Conn
	left int64
}

var errCut = errors.New("cut")

func (c *cutting) Read(p []byte) (int, error) {
	if c.left <= 0 {
		return 0, errCut
	}
	n, err := c.Conn.Read(p[:min(int64(len(p)), c.left)])
	c.left -= int64(n)
	return n, err
}

func (c *cutting) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p[:min(int64(len(p)), max(c.left, 0))])
	c.left -= int64(n)
	if err == nil && n < len(p) {
		err = errCut
	}
	return n, err
}

// cutOff sends something and leaves.
func cutOff(addr string, b []byte, reset bool) error {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer c.Close()
	c.Write(b)
	if reset {
		c.(*net.TCPConn).SetLinger(0)
	}
	return nil
}

// silent sends something and leaves after a while.
func silent(addr string, b []byte) error {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer c.Close()
	c.Write(b)
	c.SetReadDeadline(time.Now().Add(time.Duration(rand.IntN(300)) * time.Millisecond))
	io.Copy(io.Discard, c)
	return nil
}

// workers is how many clients of a balance are under way at once.
const workers = 32

// balance makes many clients do handshakes, good and bad, and compares what the relay uses before and after. The first tenth is not counted: buffers and
// pools grow until they are as large as they have to be.
func (s *stress) balance() error {
	r, err := s.start("penstock", s.server.Certificate, s.server.Key)
	if err != nil {
		return err
	}
	defer r.stop()
	all, err := s.callers(r)
	if err != nil {
		return err
	}
	fmt.Fprintf(s.Out, "\n# balance: %d clients after %d that are not counted, %d at a time, each in turn one of:", s.handshakes, s.handshakes/10, workers)
	for i, v := range all {
		fmt.Fprintf(s.Out, "%s %s", map[bool]string{true: ",", false: ""}[i > 0], v.name)
	}
	fmt.Fprintln(s.Out)
	table := tabwriter.NewWriter(s.Out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "clients\tgoroutines\tfiles\tRSS MB\topen flows\tCPU s\tseconds\t")
	var number atomic.Int64
	var mu sync.Mutex
	var wrong []error
	visit := func(n int) {
		var wg sync.WaitGroup
		end := number.Load() + int64(n)
		for range workers {
			wg.Go(func() {
				for {
					i := number.Add(1) - 1
					if i >= end {
						return
					}
					v := all[int(i)%len(all)]
					if err := v.call(); err != nil {
						mu.Lock()
						wrong = append(wrong, fmt.Errorf("%s: %w", v.name, err))
						mu.Unlock()
					}
				}
			})
		}
		wg.Wait()
		number.Store(end)
	}
	begun := time.Now()
	visit(s.handshakes / 10)
	var first, last use
	const steps = 10
	for step := range steps + 1 {
		if step > 0 {
			visit(s.handshakes / steps)
		}
		if last, err = s.rest(r); err != nil {
			return err
		}
		if step == 0 {
			first = last
		}
		open, err := r.metric("penstock_flows_open")
		if err != nil {
			return err
		}
		fmt.Fprintf(table, "%d\t%d\t%d\t%.1f\t%d\t%.1f\t%.0f\t\n", s.handshakes/steps*step, last.goroutines, last.files, float64(last.kb)/1024, open, (last.cpu - first.cpu).Seconds(), time.Since(begun).Seconds())
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for i, err := range wrong {
		if i < 10 {
			fmt.Fprintf(s.Out, "# FAILED: %v\n", err)
		}
	}
	fmt.Fprintf(s.Out, "# %d of %d clients were not treated as they should; goroutines %+d, files %+d, RSS %+.1f MB\n", len(wrong), s.handshakes*11/10, last.goroutines-first.goroutines, last.files-first.files, float64(last.kb-first.kb)/1024)
	if len(wrong) > 0 || last.goroutines > first.goroutines+2 || last.files > first.files+2 || last.kb > first.kb*5/4 {
		return errors.New("the balance is not even")
	}
	return r.intact()
}

// rest waits until no flow is left, and returns what the relay uses then.
func (s *stress) rest(r *relay) (u use, err error) {
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		open, err := r.metric("penstock_flows_open")
		if err != nil {
			return u, err
		}
		handshakes, err := r.metric("penstock_loop_flows")
		if err != nil {
			return u, err
		}
		if open == 0 && handshakes == 0 || time.Now().After(end) {
			return r.use()
		}
	}
}

// renewal is how often there is another certificate.
const renewal = 200 * time.Millisecond

// reload renews the certificate all the time, as a pair of files of which the key comes first and then the certificate, and reloads the configuration every
// second time. Each client must be served, with a certificate that was there at some time.
func (s *stress) reload() error {
	file := func(name string) string { return s.Dir + "/" + name }
	renew := func() (int64, error) {
		pair, err := s.authority.Server("next", "ecdsa", certs.Name)
		if err != nil {
			return 0, err
		}
		return pair.Serial, errors.Join(os.Rename(pair.Key, file("live.key")), os.Rename(pair.Certificate, file("live.pem")))
	}
	first, err := renew()
	if err != nil {
		return err
	}
	r, err := s.start("penstock", file("live.pem"), file("live.key"))
	if err != nil {
		return err
	}
	defer r.stop()
	length := 6 * s.length
	over := make(chan struct{})
	var wg sync.WaitGroup
	var newest atomic.Int64
	newest.Store(first)
	renewed, reloads := 0, 0
	var failed error
	wg.Go(func() {
		tick := time.NewTicker(renewal)
		defer tick.Stop()
		for {
			select {
			case <-over:
				return
			case <-tick.C:
			}
			serial, err := renew()
			if err != nil {
				failed = err
				return
			}
			newest.Store(serial)
			if renewed++; renewed%2 == 0 {
				reloads++
				r.hangUp()
			}
		}
	})
	var mu sync.Mutex
	var shaken waits
	var wrong []error
	seen := map[int64]int{}
	oldest := int64(0)
	for i := range 8 {
		wg.Go(func() {
			config := s.trusting()
			if i%2 == 0 {
				config.ClientSessionCache = tls.NewLRUClientSessionCache(8)
			}
			for {
				select {
				case <-over:
					return
				default:
				}
				begun := time.Now()
				before := newest.Load()
				serial, resumed, err := serialOf(r.secure, config)
				mu.Lock()
				switch {
				case err != nil:
					wrong = append(wrong, err)
				case serial < first:
					wrong = append(wrong, fmt.Errorf("certificate %d, which never was there", serial))
				default:
					shaken.all = append(shaken.all, time.Since(begun))
					seen[serial]++
					if !resumed {
						oldest = max(oldest, before-serial)
					}
				}
				mu.Unlock()
			}
		})
	}
	time.Sleep(length)
	close(over)
	wg.Wait()
	if failed != nil {
		return failed
	}
	fmt.Fprintf(s.Out, "\n# reload: for %v another certificate and key every %v, and %d reloads; 8 clients all the time, half of which resume\n", length, renewal, reloads)
	fmt.Fprintf(s.Out, "handshakes %d, failed %d; p50, p99, max ms: %s; %d certificates were made, %d of them seen; a full handshake was at most %d certificates behind\n",
		len(shaken.all)+len(wrong), len(wrong), shaken.text(), renewed+1, len(seen), oldest)
	for i, err := range wrong {
		if i < 10 {
			fmt.Fprintf(s.Out, "# FAILED: %v\n", err)
		}
	}
	if printed := r.stop(); len(wrong) > 0 {
		return fmt.Errorf("%d handshakes failed\nthe relay printed: %s", len(wrong), printed)
	}
	return r.intact()
}

// serialOf is once for a client that tells which certificate it got, now or when the session began that it resumes.
func serialOf(addr string, config *tls.Config) (serial int64, resumed bool, err error) {
	c, err := tls.Dial("tcp", addr, config)
	if err != nil {
		return 0, false, err
	}
	defer c.Close()
	state := c.ConnectionState()
	return state.PeerCertificates[0].SerialNumber.Int64(), state.DidResume, ask(c, patience)
}
