package main

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testwait"
)

// The log ends with "ended"; the lines of the flows that the shutdown has cut come before it.
func TestEndedIsLast(t *testing.T) {
	t.Parallel()
	d := relay(t, "--log-flows=all", "--drain-timeout=0s", "tcp://127.0.0.1:0", "echo:")
	const n = 50
	for range n {
		c := d.dial()
		if _, err := c.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
	d.signal(syscall.SIGTERM)
	d.mustExit(3)
	if got := len(d.wait("flow", n)); got != n {
		t.Errorf("%d lines of flows", got)
	}
	if last := d.lines[len(d.lines)-1]; last["msg"] != "ended" {
		t.Errorf("the last line is %v", last)
	}
}

// Draining during a storm of short connections: every client that was accepted is served to its
// end. Others are refused, or reset if they were in the kernel's queue when it closed.
func TestDrainUnderLoad(t *testing.T) {
	d := relay(t, "--drain-timeout=1h", "tcp://127.0.0.1:0", "echo:")
	const size = 64
	var served atomic.Int64
	client := func() error {
		c, err := net.Dial("tcp", d.addr().String())
		if err != nil {
			return err
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(patience))
		buf := make([]byte, size)
		if _, err := c.Write(buf); err != nil {
			return err
		}
		if _, err := io.ReadFull(c, buf); err != nil {
			return err
		}
		served.Add(1)
		return nil
	}
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for {
				err := client()
				if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	testwait.For(func() bool { return served.Load() >= 500 })
	d.signal(syscall.SIGTERM)
	wg.Wait()
	d.mustExit(0)
	n := float64(served.Load())
	if end := d.line("ended"); end["accepted"] != n || end["bytes"] != 2*n*size { // up and down
		t.Errorf("%v clients were served, and the daemon counts %v", n, end)
	}
}
