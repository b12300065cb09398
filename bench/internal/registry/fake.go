//go:build linux

package registry

import (
	"net"
	"net/http"
	"sync"

	"github.com/penstock/penstock/internal/testport"
)

// A fake is an HTTP server in this process, which stands for one that cannot be had as a Go module.
type fake struct {
	addr  string
	serve http.HandlerFunc

	release func() // ends the reservation of the port

	mu      sync.Mutex
	changed chan struct{} // closed at the next change
	server  *http.Server  // nil: it does not run
	done    chan struct{} // closed when it has ended
}

func newFake(serve http.HandlerFunc) (*fake, error) {
	f := &fake{serve: serve, changed: make(chan struct{})}
	port, release, err := testport.Reserve()
	if err != nil {
		return nil, err
	}
	f.addr, f.release = "127.0.0.1:"+port, release
	if err := f.Start(); err != nil {
		release()
		return nil, err
	}
	return f, nil
}

// Start starts the server, again at the same address.
func (f *fake) Start() error {
	l, err := net.Listen("tcp", f.addr)
	if err != nil {
		return err
	}
	s, done := &http.Server{Handler: f.serve}, make(chan struct{})
	f.server, f.done = s, done
	go func() {
		defer close(done)
		s.Serve(l)
	}()
	return nil
}

// Kill closes the server's listener and all its connections.
func (f *fake) Kill() {
	if f.server != nil {
		f.server.Close()
		<-f.done
		f.server = nil
	}
}

func (f *fake) Close() {
	f.Kill()
	f.release()
}

func (f *fake) PID() int { return 0 }

// touch tells whoever follows that something has changed. The caller holds f.mu.
func (f *fake) touch() {
	close(f.changed)
	f.changed = make(chan struct{})
}
