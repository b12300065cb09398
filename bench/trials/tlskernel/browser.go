//go:build linux

package main

import (
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/net/websocket"

	"github.com/penstock/penstock/bench/internal/certs"
)

// browser is Chromium with one page, which connects by WebSocket: to the relay over TLS, and to this program in the clear. It passes on what either
// sends, so that it is a pipe as the other programs are, with the browser's TLS.
type browser struct {
	cmd    *exec.Cmd
	orders *websocket.Conn // the page connects when a number is sent here

	mu    sync.Mutex
	next  int
	pipes map[string]chan *browserConn // of connections that are awaited, by their number
}

// page is what the browser runs. Text from this program ends a connection; text to it says that one has not ended well.
const page = `<!doctype html><title>tlskernel</title><script>
const here = "ws://" + location.host, orders = new WebSocket(here + "/orders")
orders.onmessage = order => {
	const relay = new WebSocket("wss://%s:%s/")
	relay.binaryType = "arraybuffer"
	const pipe = new WebSocket(here + "/pipe/" + order.data)
	pipe.binaryType = "arraybuffer"
	const opened = new Promise(resolve => relay.onopen = resolve)
	const open = new Promise(resolve => pipe.onopen = resolve)
	pipe.onmessage = async m => { await opened; typeof m.data == "string" ? relay.close() : relay.send(m.data) }
	relay.onmessage = async m => { await open; pipe.send(m.data) }
	relay.onclose = async e => { await open; if (!e.wasClean) pipe.send("not clean: " + e.code); pipe.close() }
	pipe.onclose = () => relay.close()
}
</script>`

// startBrowser starts Chromium, and waits until its page is there.
func startBrowser(s *setup, name string, flags ...string) (*browser, error) {
	cert, err := tls.LoadX509KeyPair(s.pair.Certificate, s.pair.Key)
	if err != nil {
		return nil, err
	}
	own := sha256.Sum256(cert.Leaf.RawSubjectPublicKeyInfo)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	b := &browser{pipes: map[string]chan *browserConn{}}
	ready := make(chan *websocket.Conn, 1)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintf(w, page, certs.Name, s.ports["web"]) })
	mux.Handle("GET /orders", websocket.Server{Handler: func(ws *websocket.Conn) {
		ready <- ws
		io.Copy(io.Discard, ws) // until it ends
	}})
	mux.Handle("GET /pipe/{number}", websocket.Server{Handler: func(ws *websocket.Conn) {
		ws.PayloadType = websocket.BinaryFrame
		c := &browserConn{Conn: ws, closed: make(chan struct{})}
		b.mu.Lock()
		pipe := b.pipes[ws.Request().PathValue("number")]
		b.mu.Unlock()
		select {
		case pipe <- c:
			<-c.closed
		default: // nobody waits for it any more
		}
	}})
	go http.Serve(l, mux)
	b.cmd = exec.Command("chromium", append(flags, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
		"--user-data-dir="+filepath.Join(s.Dir, name), "--ignore-certificate-errors-spki-list="+base64.StdEncoding.EncodeToString(own[:]),
		"--host-resolver-rules=MAP "+certs.Name+" 127.0.0.1", "http://"+l.Addr().String()+"/")...)
	b.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := b.cmd.Start(); err != nil {
		return nil, err
	}
	select {
	case b.orders = <-ready:
		return b, nil
	case <-time.After(s.patience):
		b.end()
		return nil, fmt.Errorf("no page of chromium within %v", s.patience)
	}
}

// end ends the browser with all its processes.
func (b *browser) end() {
	syscall.Kill(-b.cmd.Process.Pid, syscall.SIGKILL)
	b.cmd.Wait()
}

func (b *browser) dial(patience time.Duration) (conn, error) {
	b.mu.Lock()
	b.next++
	number, pipe := strconv.Itoa(b.next), make(chan *browserConn, 1)
	b.pipes[number] = pipe
	_, err := b.orders.Write([]byte(number))
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		delete(b.pipes, number)
		b.mu.Unlock()
	}()
	if err != nil {
		return nil, err
	}
	select {
	case c := <-pipe:
		return c, nil
	case <-time.After(patience):
		return nil, errors.New("the page does not connect")
	}
}

// browserConn is a connection that a page has made.
type browserConn struct {
	*websocket.Conn
	left   []byte // of the last message
	closed chan struct{}
}

// messages tells text, which is an error, from bytes of the connection.
var messages = websocket.Codec{Unmarshal: func(message []byte, kind byte, v any) error {
	if kind == websocket.TextFrame {
		return errors.New(string(message))
	}
	*v.(*[]byte) = message
	return nil
}}

func (c *browserConn) Read(b []byte) (n int, err error) {
	for len(c.left) == 0 {
		if err := messages.Receive(c.Conn, &c.left); err != nil {
			return 0, err
		}
	}
	n = copy(b, c.left)
	c.left = c.left[n:]
	return n, nil
}

func (c *browserConn) CloseWrite() error { return websocket.Message.Send(c.Conn, "end") }

func (c *browserConn) Close() error {
	err := c.Conn.Close()
	close(c.closed)
	return err
}

// dialBrowser connects with a browser of its own for each version, which the first connection starts.
func dialBrowser(version string) func(s *setup, address string) (conn, error) {
	return func(s *setup, _ string) (conn, error) {
		b, err := s.browsers.get(version, func() (*browser, error) {
			return startBrowser(s, "chromium-"+version, "--ssl-version-min="+version, "--ssl-version-max="+version)
		})
		if err != nil {
			return nil, err
		}
		return b.dial(s.patience)
	}
}

// browsers are those that run, by the version of TLS that they speak.
type browsers struct {
	mu  sync.Mutex
	all map[string]*browser
}

func (b *browsers) get(version string, start func() (*browser, error)) (*browser, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if one := b.all[version]; one != nil {
		return one, nil
	}
	one, err := start()
	if err == nil {
		b.all[version] = one
	}
	return one, err
}

func (b *browsers) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, one := range b.all {
		one.end()
	}
}
