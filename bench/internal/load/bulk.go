//go:build linux

package load

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// trailer is the answer of a discarding sink to the half-close: the number of bytes that arrived
// and, in a verifying run, their CRC.
const trailer = 16

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// runBulk writes on each connection from its own thread until the window is over. Every stream ends
// with a half-close through the relay, and with the sink's count, which must equal what was sent.
func runBulk(spec Spec, cfg Config) (Result, error) {
	to, err := sockaddr(cfg.Addr)
	if err != nil {
		return Result{}, err
	}
	var sent, writes atomic.Int64
	var stop atomic.Bool
	errc := make(chan error, spec.Conns)
	for range spec.Conns {
		go func() {
			runtime.LockOSThread()
			errc <- pour(to, spec.Size, &sent, &writes, &stop)
		}()
	}
	time.Sleep(cfg.Warm)
	if err := awaitSettled(spec, cfg, sleep); err != nil {
		return Result{}, err
	}
	var r Result
	m := meter{cfg: cfg}
	err = m.begin()
	bytes0, writes0 := sent.Load(), writes.Load()
	time.Sleep(cfg.Window)
	for end := time.Now().Add(stall); sent.Load() == bytes0 && time.Now().Before(end); {
		time.Sleep(time.Millisecond) // the window lasts until there is something to see
	}
	r.Bytes, r.Ops = sent.Load()-bytes0, writes.Load()-writes0
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

// pour writes until stop, then half-closes and compares counts.
func pour(to *unix.SockaddrInet4, size int, sent, writes *atomic.Int64, stop *atomic.Bool) error {
	fd, err := dial(to)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	buf := pattern(size)
	var own uint64
	for !stop.Load() {
		if err := sendAll(fd, buf); err != nil {
			return err
		}
		own += uint64(size)
		sent.Add(int64(size))
		writes.Add(1)
	}
	return finish(fd, own, 0)
}

// verifyBulk sends 64 MiB in total, and compares the CRC of every stream besides its count.
func verifyBulk(spec Spec, cfg Config) (Result, error) {
	to, err := sockaddr(cfg.Addr)
	if err != nil {
		return Result{}, err
	}
	each := 64 << 20 / spec.Conns
	errc := make(chan error, spec.Conns)
	for range spec.Conns {
		go func() {
			runtime.LockOSThread()
			errc <- pourChecked(to, spec.Size, each)
		}()
	}
	for range spec.Conns {
		err = errors.Join(err, <-errc)
	}
	return Result{Bytes: int64(each) * int64(spec.Conns)}, err
}

func pourChecked(to *unix.SockaddrInet4, size, total int) error {
	fd, err := dial(to)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	// Longer than a write by a few bytes, so that no two writes are equal.
	buf := pattern(size + 4099)
	var crc uint32
	for at := 0; at < total; at += size {
		p := buf[at/size%4099:][:min(size, total-at)]
		crc = crc32.Update(crc, castagnoli, p)
		if err := sendAll(fd, p); err != nil {
			return err
		}
	}
	return finish(fd, uint64(total), uint64(crc))
}

// finish half-closes fd and waits for the sink's trailer.
func finish(fd int, count, crc uint64) error {
	if err := unix.Shutdown(fd, unix.SHUT_WR); err != nil {
		return fmt.Errorf("half-close: %w", err)
	}
	var t [trailer]byte
	if err := recvAll(fd, t[:]); err != nil {
		return fmt.Errorf("wait for the sink's count: %w", err)
	}
	gotCount, gotCRC := binary.LittleEndian.Uint64(t[:]), binary.LittleEndian.Uint64(t[8:])
	if gotCount != count || gotCRC != crc {
		return fmt.Errorf("sent %d bytes with CRC %#x, the sink has %d with CRC %#x", count, crc, gotCount, gotCRC)
	}
	return nil
}

func pattern(n int) []byte {
	p := make([]byte, n)
	seed := [32]byte{}
	rand.NewChaCha8(seed).Read(p)
	return p
}
