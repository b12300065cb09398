package sys

import (
	"io"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestRoomOnUnixSockets: the room for control messages follows the socket that
// is read from, whatever the vector was used for before. Room for descriptors
// on a Unix socket would let a peer fill the table for as long as a batch takes.
func TestRoomOnUnixSockets(t *testing.T) {
	for _, made := range []Family{0, IPv4, IPv6, Unix} {
		for _, timed := range []bool{false, true} {
			v := NewVector(3, 3, made)
			if timed {
				v.OfferTime()
			}
			unixRoom := 0
			if timed {
				unixRoom = timeRoom
			}
			for turn, family := range []Family{Unix, IPv4, Unix, Unix, IPv6, IPv6, Unix} {
				want := ControlSize
				if family == Unix {
					want = unixRoom
				}
				if turn%2 == 0 {
					v.SetBuf(1, make([]byte, 1))
				} else {
					v.Rearm(1, 1)
				}
				v.offer(family)
				for i := range v.hdrs {
					if got := int(v.hdrs[i].hdr.Controllen); got != want {
						t.Fatalf("made for %d, timed %t, turn %d from family %d: header %d offers %d bytes, want %d", made, timed, turn, family, i, got, want)
					}
				}
			}
		}
	}
}

// TestTimeRoomIsForTheTimeAlone: any remaining room is too short for a descriptor.
func TestTimeRoomIsForTheTimeAlone(t *testing.T) {
	b, _ := appendControl(make([]byte, 0, ControlSize), 1, 35, 2*alignTo)
	if len(b) != timeRoom {
		t.Errorf("the time takes %d bytes, its room is %d", len(b), timeRoom)
	}
}

// TestStreamsTakeNoDescriptors: the calls of a stream's data path have no room
// for control messages at all, and what was passed is gone once its bytes are
// read, copied or spliced.
func TestStreamsTakeNoDescriptors(t *testing.T) {
	for _, how := range []string{"recv", "discard", "splice"} {
		t.Run(how, func(t *testing.T) {
			pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer unix.Close(pair[0])
			defer unix.Close(pair[1])
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			fds := make([]int, 253) // SCM_MAX_FD
			for i := range fds {
				fds[i] = int(w.Fd())
			}
			if err := unix.Sendmsg(pair[0], []byte("x"), AppendRights(make([]byte, 0, 2048), fds...), nil, 0); err != nil {
				t.Fatal(err)
			}
			w.Close()
			var k Linux
			var n int
			var e Errno
			switch how {
			case "recv":
				n, e = k.Recv(pair[1], make([]byte, 9))
			case "discard":
				n, e = k.Discard(pair[1], make([]byte, 9), false)
			case "splice":
				in, out, _, errno := k.Pipe(1 << 16)
				if errno != 0 {
					t.Fatal(errno)
				}
				defer unix.Close(in)
				defer unix.Close(out)
				n, e = k.Splice(pair[1], out, 9)
			}
			if n != 1 || e != 0 {
				t.Fatalf("%d bytes, %v", n, e)
			}
			r.SetReadDeadline(time.Now().Add(time.Minute))
			if n, err := r.Read(make([]byte, 1)); n != 0 || err != io.EOF {
				t.Errorf("the pipe that was passed is still open here: %v", err)
			}
		})
	}
}
