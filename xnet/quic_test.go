package xnet

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"hash"
	"io"
	"math/big"
	mathrand "math/rand/v2"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/penstock/penstock/dgram"
	"github.com/penstock/penstock/relay"
)

var _ quic.OOBCapablePacketConn = (*Conn)(nil)

const streams = 4

// TestQUIC moves 100 MB through quic-go over a Conn, in several streams of
// several connections, checks every byte, and reports the CPU time beside
// quic-go on plain sockets.
func TestQUIC(t *testing.T) {
	total := 100_000_000
	if raceEnabled || testing.Short() {
		total /= 10
	}
	const rounds = 3
	transfers := []func(*testing.T, int) time.Duration{overUDPConn, overConn}
	var cpu [2]time.Duration
	for range rounds { // interleaved, so that both have the machine's moods
		for i, transfer := range transfers {
			cpu[i] += transfer(t, total)
		}
	}
	if cpu[0] > 0 {
		t.Logf("CPU for %d x %d MB: net.UDPConn %v, xnet.Conn %v, ratio %.2f", rounds, total/1_000_000, cpu[0], cpu[1], float64(cpu[1])/float64(cpu[0]))
	}
}

func overUDPConn(t *testing.T, total int) time.Duration {
	return measure(t, socket(t), socket(t), total)
}

func overConn(t *testing.T, total int) time.Duration {
	var ours [2]*Conn
	for i := range ours {
		c, err := New(socket(t), dgram.Config{})
		if err != nil {
			t.Fatal(err)
		}
		ours[i] = c
	}
	cpu := measure(t, ours[0], ours[1], total)
	s := ours[1].Stats()
	t.Logf("%d datagrams received as %d messages by %d calls, %d dropped by the kernel", s.ReadDatagrams, s.ReadMessages, s.ReadCalls, s.Lost)
	if ours[1].Mode().GRO && s.ReadMessages >= s.ReadDatagrams {
		t.Error("no super-packet came: the fast path did not run")
	}
	return cpu
}

// TestQUICThroughRelay is the same with the relay's engine between client and
// server: every byte arrives.
func TestQUICThroughRelay(t *testing.T) {
	server := socket(t)
	to := relay.Addr{Network: relay.UDP, AddrPort: server.LocalAddr().(*net.UDPAddr).AddrPort()}
	e, err := relay.New(relay.Config{})
	if errors.Is(err, errors.ErrUnsupported) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	l, err := e.Listen(relay.Addr{Network: relay.UDP, AddrPort: netip.MustParseAddrPort("127.0.0.1:0")}, relay.ListenConfig{
		Hooks: relay.Hooks{Upstream: func(_ *relay.Flow, attempt int) *relay.Addr {
			if attempt > 0 {
				return nil
			}
			return &to
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := transfer(socket(t), server, net.UDPAddrFromAddrPort(l.Addr().AddrPort), 20_000_000); err != nil {
		t.Fatal(err)
	}
	stats := e.Stats()
	total := stats.Total()
	t.Logf("%d datagrams received, %d sent in %d runs", total.Datagrams.Received, total.Datagrams.Sent, total.Datagrams.Runs)
	if total.Datagrams.Sent < 20_000_000/1500 {
		t.Error("they did not go through the relay")
	}
}

// measure is the CPU time that one transfer took.
func measure(t *testing.T, client, server net.PacketConn, total int) time.Duration {
	t.Helper()
	start, used := time.Now(), cpuTime()
	if err := transfer(client, server, server.LocalAddr(), total); err != nil {
		t.Fatal(err)
	}
	used = cpuTime() - used
	t.Logf("%T: %d MB in %v, CPU %v", client, total/1_000_000, time.Since(start).Round(time.Millisecond), used)
	return used
}

func socket(tb testing.TB) *net.UDPConn {
	tb.Helper()
	c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		tb.Fatal(err)
	}
	c.SetReadBuffer(8 << 20)
	c.SetWriteBuffer(8 << 20)
	tb.Cleanup(func() { c.Close() })
	return c
}

// transfer sends total bytes from client to server in several streams at once,
// and compares checksums.
func transfer(client, server net.PacketConn, to net.Addr, total int) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	serverTLS, clientTLS, err := tlsConfigs()
	if err != nil {
		return err
	}
	st := &quic.Transport{Conn: server}
	defer st.Close()
	ct := &quic.Transport{Conn: client}
	defer ct.Close()
	l, err := st.Listen(serverTLS, nil)
	if err != nil {
		return err
	}
	defer l.Close()

	errs := make(chan error, 2)
	sums := make([][2]hash.Hash, streams)
	var wg sync.WaitGroup
	wg.Go(func() { errs <- receive(ctx, l, sums) })
	qc, err := ct.Dial(ctx, to, clientTLS, nil)
	if err == nil {
		err = send(ctx, qc, sums, total/streams)
	}
	if err != nil {
		l.Close()
		cancel()
	}
	wg.Wait()
	if rerr := <-errs; err == nil {
		err = rerr
	}
	if qc != nil {
		qc.CloseWithError(0, "")
	}
	if err != nil {
		return err
	}
	for i, s := range sums {
		if a, b := fmt.Sprintf("%x", s[0].Sum(nil)), fmt.Sprintf("%x", s[1].Sum(nil)); a != b {
			return fmt.Errorf("stream %d: sent %s, received %s", i, a, b)
		}
	}
	return nil
}

// send writes one stream after its number, size bytes each, all at once.
func send(ctx context.Context, qc *quic.Conn, sums [][2]hash.Hash, size int) error {
	errs := make(chan error, streams)
	for i := range streams {
		sums[i][0] = sha256.New()
		go func() {
			errs <- func() error {
				s, err := qc.OpenUniStreamSync(ctx)
				if err != nil {
					return err
				}
				if _, err := s.Write([]byte{byte(i)}); err != nil {
					return err
				}
				noise := mathrand.NewChaCha8([32]byte{byte(i)})
				n, err := io.CopyN(io.MultiWriter(s, sums[i][0]), noise, int64(size))
				if err != nil {
					return fmt.Errorf("stream %d: %d bytes written: %w", i, n, err)
				}
				return s.Close()
			}()
		}()
	}
	var first error
	for range streams {
		if err := <-errs; err != nil && first == nil {
			first = err
		}
	}
	return first
}

func receive(ctx context.Context, l *quic.Listener, sums [][2]hash.Hash) error {
	qc, err := l.Accept(ctx)
	if err != nil {
		return err
	}
	errs := make(chan error, streams)
	for range streams {
		s, err := qc.AcceptUniStream(ctx)
		if err != nil {
			return err
		}
		go func() {
			errs <- func() error {
				var which [1]byte
				if _, err := io.ReadFull(s, which[:]); err != nil {
					return err
				}
				h := sha256.New()
				_, err := io.Copy(h, s)
				sums[which[0]][1] = h
				return err
			}()
		}()
	}
	var first error
	for range streams {
		if err := <-errs; err != nil && first == nil {
			first = err
		}
	}
	return first
}

func tlsConfigs() (server, client *tls.Config, err error) {
	pub, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"test"}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, pub, key)
	if err != nil {
		return nil, nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, nil, err
	}
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	proto := []string{"penstock-test"}
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, NextProtos: proto},
		&tls.Config{RootCAs: pool, ServerName: "test", NextProtos: proto}, nil
}

// cpuTime is the user and system time of this process, in the kernel's ticks of
// a hundredth of a second; 0 where there is no proc(5).
func cpuTime() time.Duration {
	b, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond
}
