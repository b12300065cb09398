//go:build linux

package load

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// writeBlocks writes a stream: blocks of the same size, each of which begins with 8 bytes, its number and, in the lowest bit, whether it is the last one.
// It writes until stop, and then the last one. It counts bytes.
func writeBlocks(w io.Writer, size int, stop *atomic.Bool, bytes *atomic.Int64) (blocks uint64, err error) {
	b := pattern(size)
	for last := uint64(0); last == 0; blocks++ {
		if stop.Load() {
			last = 1
		}
		binary.LittleEndian.PutUint64(b, blocks<<1|last)
		if _, err := w.Write(b); err != nil {
			return blocks, err
		}
		bytes.Add(int64(size))
	}
	return blocks, nil
}

// readBlocks reads blocks to the last one.
func readBlocks(r io.Reader, size int, bytes *atomic.Int64) (blocks uint64, err error) {
	b := make([]byte, size)
	for {
		if _, err := io.ReadFull(r, b); err != nil {
			return blocks, err
		}
		head := binary.LittleEndian.Uint64(b)
		if head>>1 != blocks {
			return blocks, fmt.Errorf("block %d came as the one with number %d", head>>1, blocks)
		}
		bytes.Add(int64(size))
		blocks++
		if head&1 == 1 {
			return blocks, nil
		}
	}
}

// runStreams has a thread for each connection.
func runStreams(spec TLSSpec, cfg Config) (r Result, err error) {
	to, err := sockaddr(cfg.Addr)
	if err != nil {
		return r, err
	}
	var bytes atomic.Int64
	var stop atomic.Bool
	errc := make(chan error, spec.Conns)
	for range spec.Conns {
		go func() {
			runtime.LockOSThread()
			errc <- spec.stream(to, &stop, &bytes)
		}()
	}
	time.Sleep(cfg.Warm)
	m := meter{cfg: cfg}
	err = m.begin()
	before := bytes.Load()
	time.Sleep(cfg.Window)
	for end := time.Now().Add(stall); bytes.Load() == before && len(errc) == 0 && time.Now().Before(end); {
		time.Sleep(time.Millisecond) // the window lasts until there is something to see
	}
	r.Bytes = bytes.Load() - before
	r.Ops = r.Bytes / int64(spec.Size)
	err = errors.Join(err, m.end(&r))
	stop.Store(true)
	for range spec.Conns {
		err = errors.Join(err, <-errc)
	}
	if r.Bytes == 0 {
		err = errors.Join(err, errors.New("no bytes arrived in the window"))
	}
	return r, err
}

// stream carries one stream up or down, and compares how many blocks both ends have seen.
func (s TLSSpec) stream(to *unix.SockaddrInet4, stop *atomic.Bool, bytes *atomic.Int64) error {
	c, _, err := s.dial(to)
	if err != nil {
		return err
	}
	defer c.Close()
	var blocks uint64
	if s.Kind == Up {
		blocks, err = writeBlocks(c, s.Size, stop, bytes)
	} else {
		ended := make(chan struct{})
		defer close(ended)
		go func() { // the sink goes on until it gets a byte
			tick := time.NewTicker(time.Millisecond)
			defer tick.Stop()
			for !stop.Load() {
				select {
				case <-tick.C:
				case <-ended:
					return
				}
			}
			c.Write([]byte{1})
		}()
		blocks, err = readBlocks(c, s.Size, bytes)
	}
	if err != nil {
		return err
	}
	var t [8]byte
	if _, err := io.ReadFull(c, t[:]); err != nil {
		return fmt.Errorf("wait for the sink's count: %w", err)
	}
	if n := binary.LittleEndian.Uint64(t[:]); n != blocks {
		return fmt.Errorf("%d blocks here, %d at the sink", blocks, n)
	}
	return nil
}
