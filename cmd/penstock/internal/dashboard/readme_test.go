package dashboard_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"flag"
	"fmt"
	"io"
	"math/big"
	mrand "math/rand/v2"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/penstock/penstock/cmd/penstock/internal/testbrowser"
	"github.com/penstock/penstock/internal/testnet"
)

var readme = flag.String("readme", "", "a file: take the README's picture there, of a real daemon that has been under load for five minutes")

const readmeConfiguration = `
listeners:
  https:
    listen: tcp://127.0.0.1:8443
    routes:
      - {name: api, sni: [api.example.com], to: api}
      - {name: static, sni: [static.example.com], to: static}
    to: web
  postgres:
    listen: tcp://127.0.0.1:5433
    to: databases
  dns:
    listen: udp://127.0.0.1:5353
    to: resolvers
groups:
  api: {members: [API], check: {tcp: {}}}
  static: {members: [STATIC], check: {tcp: {}}}
  web: {members: [WEB], check: {tcp: {}}}
  databases: {members: [DB], check: {tcp: {}}}
  resolvers: {members: [DNS]}
admin:
  listen: tcp://127.0.0.1:0
  token-file: DIR/token
  read-token-file: DIR/read-token
`

// TestReadmePicture takes docs/pictures/dashboard.png: nothing in it is made up.
func TestReadmePicture(t *testing.T) {
	if *readme == "" {
		t.Skip("the README's picture is taken with -readme FILE")
	}
	in := testbrowser.Start(t)
	dir := t.TempDir()
	certificate := selfSigned(t)
	servers := map[string][]string{}
	for group, n := range map[string]int{"API": 4, "STATIC": 2, "WEB": 2, "DB": 2, "DNS": 2} {
		for i := range n {
			url := ""
			switch {
			case group == "DNS":
				url = "udp://" + answerDatagrams(t)
			case group == "DB":
				url = "tcp://" + answerStreams(t, nil)
			case group == "API" && i == 2: // one that is down
				url = "tcp://127.0.0.1:" + testnet.Port(t)
			default:
				url = "tcp://" + answerStreams(t, &tls.Config{Certificates: []tls.Certificate{certificate}})
			}
			servers[group] = append(servers[group], fmt.Sprintf("{name: %s-%d, to: %q}", map[string]string{"API": "api", "STATIC": "static", "WEB": "web", "DB": "db", "DNS": "dns"}[group], i+1, url))
		}
	}
	text := strings.ReplaceAll(readmeConfiguration, "DIR", dir)
	for group, members := range servers {
		text = strings.ReplaceAll(text, "["+group+"]", "["+strings.Join(members, ", ")+"]")
	}
	origin, client := startDaemon(t, dir, text)

	stop, wait := make(chan struct{}), sync.WaitGroup{}
	defer func() { close(stop); wait.Wait() }()
	load := func(n int, one func()) {
		for range n {
			wait.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
						one()
					}
				}
			})
		}
	}
	began := time.Now()
	wave := func(mean, swing time.Duration, period float64) time.Duration { // a load that comes and goes
		at := time.Since(began).Seconds() / period
		return mean + time.Duration(float64(swing)*(0.5+mrand.Float64())*(1+tide(at)))
	}
	visit := func(name string, answer int64, pause time.Duration) func() {
		return func() {
			exchange("127.0.0.1:8443", &tls.Config{ServerName: name, InsecureSkipVerify: true}, answer, pause)
			lapse(wave(30*time.Millisecond, 60*time.Millisecond, 20))
		}
	}
	load(24, visit("api.example.com", 40_000, 300*time.Millisecond))
	load(6, visit("static.example.com", 3_000_000, 100*time.Millisecond))
	load(6, visit("www.example.com", 200_000, 500*time.Millisecond))
	load(10, func() { exchange("127.0.0.1:5433", nil, 100_000, wave(2*time.Second, time.Second, 31)) })
	load(8, func() {
		c, err := net.Dial("udp", "127.0.0.1:5353")
		if err != nil {
			return
		}
		defer c.Close()
		for range 40 {
			c.Write(make([]byte, 60))
			c.SetReadDeadline(time.Now().Add(time.Second))
			c.Read(make([]byte, 2000))
			lapse(wave(10*time.Millisecond, 20*time.Millisecond, 13))
		}
	})

	b := open(t, in, origin)
	call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "light"}}})
	b.do(chromedp.EmulateViewport(1280, 1486))
	b.enter("#token input", full)
	b.live()
	for time.Since(began) < 5*time.Minute+10*time.Second {
		lapse(time.Second)
		if n, err := client.Status(context.Background()); err != nil || n.Totals.Flows == 0 {
			t.Fatal("the load has ended", err)
		}
	}
	eval[chromedp.Void](b, "document.activeElement.blur(), scrollTo(0, 0)")
	png, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	if err == nil {
		err = os.WriteFile(*readme, png, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// tide is between -1 and 1.
func tide(at float64) float64 {
	at -= float64(int(at))
	if at < 0.5 {
		return 4*at - 1
	}
	return 3 - 4*at
}

// exchange asks for so many bytes, reads them, and stays for a while.
func exchange(at string, secure *tls.Config, answer int64, stay time.Duration) {
	c, err := net.DialTimeout("tcp", at, 5*time.Second)
	if err != nil {
		return
	}
	if secure != nil {
		c = tls.Client(c, secure)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := fmt.Fprintf(c, "%d\n", answer); err != nil {
		return
	}
	io.CopyN(io.Discard, c, answer)
	lapse(stay)
}

// lapse is the pace of what takes pictures, which no check does.
func lapse(d time.Duration) { time.Sleep(d) }

// answerStreams serves clients of exchange, and returns where.
func answerStreams(t *testing.T, secure *tls.Config) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { c.Close() }() // of TLS, with close_notify
				if secure != nil {
					c = tls.Server(c, secure)
				}
				c.SetDeadline(time.Now().Add(30 * time.Second))
				var n int64
				if _, err := fmt.Fscanf(c, "%d\n", &n); err != nil {
					return
				}
				lapse(time.Duration(mrand.IntN(8)) * time.Millisecond)
				for piece := make([]byte, 32<<10); n > 0; n -= int64(len(piece)) {
					if _, err := c.Write(piece[:min(n, int64(len(piece)))]); err != nil {
						return
					}
				}
				io.Copy(io.Discard, c)
			}()
		}
	}()
	return l.Addr().String()
}

func answerDatagrams(t *testing.T) string {
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	go func() {
		for b := make([]byte, 2000); ; {
			n, from, err := c.ReadFrom(b)
			if err != nil {
				return
			}
			c.WriteTo(b[:3*n], from)
		}
	}()
	return c.LocalAddr().String()
}

func selfSigned(t *testing.T) tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}
