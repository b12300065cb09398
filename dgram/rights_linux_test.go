package dgram

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
)

// TestDescriptors: whatever a peer passes beside its bytes, no descriptor stays
// in this process. Each datagram carries the writing end of a pipe as often as
// one message can; the pipe ends when no process has that end any more.
func TestDescriptors(t *testing.T) {
	const solSocket, soTimestampNS, soPassCred, soPassPidfd = 1, 35, 16, 76 // socket(7), unix(7); the last since Linux 6.5
	all := levels
	for _, l := range []level{bestLevel, portableLevel} {
		timed := l.with(func(c *Config) { c.Time = true })
		timed.name += "-time"
		all = append(all, timed)
	}
	for _, l := range all {
		for _, room := range []int{0, 64, 1024} {
			for _, row := range []struct {
				name    string
				fds     int         // descriptors beside each datagram; 253 is SCM_MAX_FD, unix(7)
				options map[int]int // that the user sets behind New's back
			}{
				{"all", 253, nil},
				{"all-without-time", 253, map[int]int{soTimestampNS: 0}},
				{"one-without-time", 1, map[int]int{soTimestampNS: 0}},
				{"credentials", 253, map[int]int{soTimestampNS: 0, soPassCred: 1}},
				{"pidfd", 0, map[int]int{soPassPidfd: 1}},
				{"pidfd-without-time", 0, map[int]int{soTimestampNS: 0, soPassPidfd: 1}},
			} {
				t.Run(fmt.Sprintf("level=%s/control=%d/passed=%s", l.name, room, row.name), func(t *testing.T) {
					dir, err := os.MkdirTemp("", "dgram")
					if err != nil {
						t.Fatal(err)
					}
					defer os.RemoveAll(dir)
					server, client := listenUnix(t, filepath.Join(dir, "s")), listenUnix(t, filepath.Join(dir, "c"))
					recv := l.conn(t, server)
					if err := recv.control(func(fd uintptr) {
						for option, value := range row.options {
							sys.SetInt(int(fd), solSocket, option, value)
						}
					}); err != nil {
						t.Fatal(err)
					}
					before := openFiles(t)
					for range 3 {
						receivePassed(t, client, server, recv, row.fds, room)
					}
					if n := openFiles(t); n > before {
						t.Errorf("%d descriptors more than before", n-before)
					}
				})
			}
		}
	}
}

// receivePassed sends datagrams with count descriptors each, all of them the
// writing end of one pipe, and expects the bytes, and the end of the pipe.
func receivePassed(t *testing.T, client, server *net.UnixConn, recv *Conn, count, room int) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var rights []byte
	if count > 0 {
		fds := make([]int, count)
		for i := range fds {
			fds[i] = int(w.Fd())
		}
		rights = sys.AppendRights(make([]byte, 0, 2048), fds...)
	}
	const datagrams = 8
	for range datagrams {
		if _, _, err := client.WriteMsgUnix([]byte("x"), rights, server.LocalAddr().(*net.UnixAddr)); err != nil {
			t.Fatal(err)
		}
	}
	w.Close()
	ms := MakeMessages(datagrams)
	for i := range ms {
		ms[i].Control = make([]byte, 0, room)
	}
	for got := 0; got < datagrams; {
		n, err := recv.ReadBatch(ms[got:])
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range ms[got : got+n] {
			if m.N != 1 || m.Buf[0] != 'x' {
				t.Errorf("%d bytes came of one", m.N)
			}
			if count > 0 && recv.Mode().Batch && m.Flags != ControlTruncated {
				t.Errorf("descriptors were dropped, and the flags are %b", m.Flags)
			}
			if sys.HasRights(m.Control) {
				t.Error("descriptors were handed out")
			}
		}
		got += n
	}
	r.SetReadDeadline(time.Now().Add(patience))
	if n, err := r.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		t.Fatalf("the pipe that was passed is still open here: %v", err)
	}
}

// openFiles counts this process's descriptors.
func openFiles(t *testing.T) int {
	t.Helper()
	d, err := os.Open("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		t.Fatal(err)
	}
	return len(names)
}
