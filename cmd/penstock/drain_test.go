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
)

// Draining in the middle of a storm of short connections: every client that was
// accepted is served to its end. Others are refused, or reset if they stood in
// the kernel's queue in the moment of its closing.
func TestDrainUnderLoad(t *testing.T) {
	d := relay(t, "tcp://127.0.0.1:0", "echo:")
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
	for deadline := time.Now().Add(patience); served.Load() < 500 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	d.signal(syscall.SIGTERM)
	wg.Wait()
	d.mustExit(0)
	n := float64(served.Load())
	if end := d.line("ended"); end["accepted"] != n || end["bytes"] != n*size {
		t.Errorf("%v clients were served, and the daemon counts %v", n, end)
	}
}
