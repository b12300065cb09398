package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Work is what a process in a sandbox can do: what the policy has, and everything for which a Go program needs the kernel.
type Work struct {
	Read, Write string // folders of the policy
	Port        int    // where it may connect to: an echo server on 127.0.0.1
	Bind        int    // where it may listen, or 0: nowhere
	Unix        bool   // whether it may make Unix sockets
	DNS         string // a server that answers
}

// do returns what failed.
func (w *Work) do() (failed []string) {
	try := func(what string, err error) {
		if err != nil {
			failed = append(failed, what+": "+err.Error())
		}
	}
	try("threads", manyThreads())
	try("files", w.files())
	try("connect", w.connect())
	try("listen", w.listen())
	try("datagrams", datagrams())
	try("resolve", w.resolve())
	try("profile", profile())
	try("signals", signals())
	try("memory", grow())
	try("preemption", preempt())
	return failed
}

func manyThreads() error {
	var all sync.WaitGroup
	release := make(chan bool)
	for range 20 {
		all.Go(func() { runtime.LockOSThread(); <-release })
	}
	close(release)
	all.Wait() // the threads end with their goroutines
	return nil
}

func (w *Work) files() error {
	b, err := os.ReadFile(filepath.Join(w.Read, "file"))
	if err != nil || string(b) != "text" {
		return fmt.Errorf("%q, %v", b, err)
	}
	if _, err := os.ReadDir(w.Read); err != nil {
		return err
	}
	if _, err := filepath.EvalSymlinks(filepath.Join(w.Read, "file")); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(w.Write, "a/b"), 0o700); err != nil {
		return err
	}
	name := filepath.Join(w.Write, "a/log")
	f, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	f.WriteString("line\n")
	for _, err := range []error{f.Sync(), f.Chmod(0o640), f.Truncate(2), os.Rename(name, filepath.Join(w.Write, "a/b/log")), os.Remove(filepath.Join(w.Write, "a/b/log"))} {
		if err != nil {
			return err
		}
	}
	if !w.Unix {
		return nil
	}
	l, err := net.Listen("unix", filepath.Join(w.Write, "socket"))
	if err != nil {
		return err
	}
	defer l.Close()
	c, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		return err
	}
	return c.Close()
}

// connect sends a file to an echo server, and splices the answer.
func (w *Work) connect() error {
	c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", w.Port))
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(30 * time.Second))
	f, err := os.Open(filepath.Join(w.Read, "file"))
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := io.Copy(c, f); err != nil { // sendfile
		return err
	}
	bufs := net.Buffers{[]byte("a"), []byte("b")}
	if _, err := bufs.WriteTo(c); err != nil { // writev
		return err
	}
	c.(*net.TCPConn).CloseWrite()
	out, err := os.Create(filepath.Join(w.Write, "answer"))
	if err != nil {
		return err
	}
	defer out.Close()
	if _, err := io.Copy(out, c); err != nil {
		return err
	}
	b, _ := os.ReadFile(out.Name())
	if string(b) != "textab" {
		return fmt.Errorf("the answer is %q", b)
	}
	return nil
}

func (w *Work) listen() error {
	if w.Bind == 0 {
		return nil
	}
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", w.Bind))
	if err != nil {
		return err
	}
	s := &http.Server{Handler: http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { rw.Write([]byte("hello")) })}
	go s.Serve(l)
	defer s.Close()
	r, err := http.Get("http://" + l.Addr().String())
	if err != nil {
		return err
	}
	defer r.Body.Close()
	_, err = io.ReadAll(r.Body)
	return err
}

func datagrams() error {
	a, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer a.Close()
	b, err := net.Dial("udp", a.LocalAddr().String())
	if err != nil {
		return err
	}
	defer b.Close()
	_, err = b.Write([]byte("x"))
	return err
}

func (w *Work) resolve() error {
	if _, err := net.Interfaces(); err != nil { // netlink
		return err
	}
	if w.DNS == "" {
		return nil
	}
	r := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, w.DNS)
	}}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	_, err := r.LookupHost(ctx, "name.example.")
	if e, ok := errors.AsType[*net.DNSError](err); ok && e.IsNotFound { // as the server says
		return nil
	}
	return fmt.Errorf("looked up: %w", err)
}

func profile() error {
	var b bytes.Buffer
	if err := pprof.StartCPUProfile(&b); err != nil {
		return err
	}
	for end := time.Now().Add(20 * time.Millisecond); time.Now().Before(end); {
	}
	pprof.StopCPUProfile()
	if b.Len() == 0 {
		return fmt.Errorf("no profile")
	}
	return pprof.Lookup("goroutine").WriteTo(&b, 1)
}

func signals() error {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGHUP)
	defer signal.Stop(c)
	p, err := os.FindProcess(os.Getpid())
	if err != nil {
		return err
	}
	if err := p.Signal(syscall.SIGHUP); err != nil {
		return err
	}
	<-c
	return nil
}

func grow() error {
	var all [][]byte
	for range 64 {
		all = append(all, make([]byte, 1<<20))
	}
	runtime.KeepAlive(all)
	all = nil
	debug.FreeOSMemory()
	debug.SetMemoryLimit(1 << 30)
	return nil
}

// preempt stops a goroutine in a loop without calls, which takes a signal to its thread.
func preempt() error {
	var sum int
	done := make(chan bool)
	go func() {
		for i := range 100_000_000 {
			sum += i
			if sum < 0 && strings.Contains("x", "y") {
				break
			}
		}
		close(done)
	}()
	runtime.GC() // stops the world
	select {
	case <-done:
	default:
	}
	return nil
}
