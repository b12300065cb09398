//go:build linux

package main

import (
	"bufio"
	"bytes"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/penstock/penstock/bench/internal/proc"
)

// keyLog is what the other end of a connection of the relay knows of its keys.
type keyLog struct {
	kernel bool // the connection is the kernel's
	mu     sync.Mutex
	lines  []string
}

func (l *keyLog) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, string(line))
	return len(line), nil
}

// keyLogs are those of all connections with TLS that end in this program.
type keyLogs struct {
	mu  sync.Mutex
	all []*keyLog
}

func (k *keyLogs) add(l *keyLog) *keyLog {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.all = append(k.all, l)
	return l
}

// A needle is something secret of a connection.
type needle struct {
	log   *keyLog
	what  string
	bytes []byte
}

// needles returns what must not be found of connections with TLS 1.3: the traffic secrets, as they are, as the text of a key log, and as the pads of
// an HMAC (RFC 2104), and what follows from them (RFC 8446, 7.3).
func (k *keyLogs) needles() (all []needle) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, l := range k.all {
		l.mu.Lock()
		for _, line := range l.lines {
			field := strings.Fields(line)
			secret, err := hex.DecodeString(field[len(field)-1])
			if err != nil || !strings.HasSuffix(field[0], "_TRAFFIC_SECRET_0") {
				continue
			}
			add := func(what string, b []byte) { all = append(all, needle{l, what, b}) }
			add("secret", secret)
			add("text of a secret", []byte(field[len(field)-1]))
			add("inner pad of a secret", xor(secret, 0x36))
			add("outer pad of a secret", xor(secret, 0x5c))
			if len(secret) == sha512.Size384 {
				add("key", expand(sha512.New384, secret, "key", 32))
				add("iv", expand(sha512.New384, secret, "iv", 12))
				continue
			}
			add("key", expand(sha256.New, secret, "key", 16))
			add("key", expand(sha256.New, secret, "key", 32)) // of ChaCha20-Poly1305
			add("iv", expand(sha256.New, secret, "iv", 12))
		}
		l.mu.Unlock()
	}
	return all
}

func xor(b []byte, with byte) []byte {
	b = bytes.Clone(b)
	for i := range b {
		b[i] ^= with
	}
	return b
}

// expand is HKDF-Expand-Label with an empty context. RFC 8446, 7.1.
func expand[H hash.Hash](h func() H, secret []byte, name string, n int) []byte {
	label := "tls13 " + name
	b, err := hkdf.Expand(h, secret, string([]byte{0, byte(n), byte(len(label))})+label+"\x00", n)
	if err != nil {
		panic(err)
	}
	return b
}

// A haystack finds needles, all of them at once.
type haystack struct {
	first  [1 << 16]bool // the first two bytes of a needle
	byHead map[uint64][]needle
	most   int // the length of the longest one
}

func newHaystack(all []needle) *haystack {
	h := &haystack{byHead: map[uint64][]needle{}}
	for _, n := range all {
		head := binary.LittleEndian.Uint64(n.bytes)
		h.first[uint16(head)] = true
		h.byHead[head] = append(h.byHead[head], n)
		h.most = max(h.most, len(n.bytes))
	}
	return h
}

// search calls found with each needle in b.
func (h *haystack) search(b []byte, found func(needle)) {
	for i := 0; i+8 <= len(b); i++ {
		if !h.first[binary.LittleEndian.Uint16(b[i:])] {
			continue
		}
		for _, n := range h.byHead[binary.LittleEndian.Uint64(b[i:])] {
			if bytes.HasPrefix(b[i:], n.bytes) {
				found(n)
			}
		}
	}
}

// read searches what lies between two offsets of a file; what cannot be read is left out, as in a core file.
func (h *haystack) read(f io.ReaderAt, from, to int64, found func(needle)) (size int64) {
	const step = 1 << 20
	for b := make([]byte, step+h.most-1); from < to; from += step {
		n, err := f.ReadAt(b[:min(int64(len(b)), to-from)], from)
		if n == 0 && err == io.EOF {
			break
		}
		h.search(b[:n], found)
		size += int64(min(n, step))
	}
	return size
}

// search searches all processes of the daemon for the keys of connections that are the kernel's: their memory, as a core file has it, the shared memory
// that they have open, of which the ledger is a part, and what else /proc tells of them. Only the worker that has made the handshakes may have something,
// which the garbage collector has not overwritten yet: it is counted.
func (s *setup) search() error {
	begun := time.Now()
	if !slices.ContainsFunc(s.clients, func(c *client) bool { return !strings.HasPrefix(c.kind.name, "chromium") }) {
		fmt.Fprintln(s.Out, "only browsers connect, which do not tell their keys, so that nothing is searched for")
		return nil
	}
	needles := s.keys.needles()
	h := newHaystack(needles)
	own := map[*keyLog]bool{} // connections that are not the kernel's: a worker has their keys, or the search finds nothing
	for _, n := range needles {
		if !n.log.kernel {
			own[n.log] = false
		}
	}
	worker, err := s.worker()
	if err != nil {
		return err
	}
	if s.maker == 0 {
		s.maker = worker
	}
	left, shared := map[string]map[string]int{memory: {}, core: {}}, map[uint64]bool{}
	var size int64
	for _, pid := range s.daemon.Tree() {
		found := func(place string, n needle) {
			switch {
			case left[place] != nil && pid != s.daemon.First() && !n.log.kernel:
				own[n.log] = true
			case left[place] != nil && pid == s.maker:
				left[place][n.what]++
			default:
				s.fault("process %d (the keeper is %d, the worker %d) has the %s of a connection in %s", pid, s.daemon.First(), worker, n.what, place)
			}
		}
		n, err := h.process(pid, shared, found)
		if err == nil && s.gcore != "" {
			var more int64
			more, err = h.core(s.gcore, pid, found)
			n += more
		}
		if err != nil && !proc.Alive(pid) {
			continue // it lingered, and its last flow has ended
		}
		if err == nil && n == 0 && (pid == worker || pid == s.daemon.First()) { // another one may just have ended
			err = errors.New("nothing of it could be read")
		}
		if err != nil {
			return fmt.Errorf("process %d: %w", pid, err)
		}
		size += n
	}
	for l, found := range own {
		if !found {
			delete(own, l) // it may have ended
		}
	}
	if len(own) == 0 {
		return errors.New("the keys of connections that are not the kernel's were not found, either")
	}
	fmt.Fprintf(s.Out, "%d bytes of %d processes searched in %v, for %d secrets and what follows from them; the worker that made the handshakes has %v",
		size, len(s.daemon.Tree()), time.Since(begun).Round(time.Second), len(needles), left[memory])
	if s.gcore != "" {
		fmt.Fprintf(s.Out, ", in its core file %v", left[core])
	}
	fmt.Fprintln(s.Out)
	return nil
}

// memory and core are the places of what belongs to one process only.
const (
	memory = "its own memory"
	core   = "its core file"
)

// core searches a core file of a process, which also has the registers of its threads.
func (h *haystack) core(gcore string, pid int, found func(place string, n needle)) (size int64, err error) {
	dir, err := os.MkdirTemp("/var/tmp", "core") // it is large: memory that was never touched is in it
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	prefix := filepath.Join(dir, "core")
	if text, err := exec.Command(gcore, "-o", prefix, strconv.Itoa(pid)).CombinedOutput(); err != nil {
		return 0, fmt.Errorf("%s: %w\n%s", gcore, err, text)
	}
	f, err := os.Open(prefix + "." + strconv.Itoa(pid))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return h.read(f, 0, info.Size(), func(n needle) { found(core, n) }), nil
}

// process searches one process, and says how much there was. shared are the files in memory that were searched already.
func (h *haystack) process(pid int, shared map[uint64]bool, found func(place string, n needle)) (size int64, err error) {
	dir := fmt.Sprintf("/proc/%d/", pid)
	mem, err := os.Open(dir + "mem")
	if err != nil {
		return 0, err
	}
	defer mem.Close()
	text, err := os.ReadFile(dir + "maps")
	if err != nil {
		return 0, err
	}
	files := []string{"environ", "cmdline"}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		field := strings.Fields(lines.Text())
		var from, to int64
		if _, err := fmt.Sscanf(field[0], "%x-%x", &from, &to); err != nil || field[1][0] != 'r' {
			continue // above what an offset can be, as vsyscall is; or reserved
		}
		if len(field) > 5 && strings.HasPrefix(field[5], "/memfd:") {
			files = append(files, "map_files/"+field[0])
			continue
		}
		size += h.read(mem, from, to, func(n needle) { found(memory, n) })
	}
	for _, in := range []string{"fd", "fdinfo"} {
		entries, err := os.ReadDir(dir + in)
		if err != nil {
			return 0, err
		}
		for _, e := range entries {
			if to, err := os.Readlink(dir + in + "/" + e.Name()); err != nil || strings.HasPrefix(to, "/memfd:") {
				files = append(files, in+"/"+e.Name())
			}
		}
	}
	for _, name := range files {
		n, err := h.file(dir+name, name, shared, found)
		if err != nil && !errors.Is(err, os.ErrNotExist) { // it may have been closed meanwhile
			return 0, err
		}
		size += n
	}
	return size, nil
}

// file searches a file of /proc. One in memory is mostly holes.
func (h *haystack) file(path, place string, shared map[uint64]bool, found func(place string, n needle)) (size int64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	if info.Size() == 0 {
		return h.read(f, 0, 1<<20, func(n needle) { found(place, n) }), nil
	}
	inode := info.Sys().(*syscall.Stat_t).Ino
	if shared[inode] {
		return 0, nil
	}
	shared[inode] = true
	for to := int64(0); ; {
		from, err := f.Seek(to, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return size, nil
		}
		if err == nil {
			to, err = f.Seek(from, unix.SEEK_HOLE)
		}
		if err != nil {
			return size, err
		}
		size += h.read(f, from, to, func(n needle) { found("shared memory", n) })
	}
}
