package splice

import (
	"net"
	"os"
	"runtime"
	"testing"
	"time"
)

// blocking makes a connection's descriptors blocking, as a File's Fd does.
func blocking(t *testing.T, c net.Conn) {
	t.Helper()
	file, err := c.(interface {
		File() (*os.File, error)
	}).File()
	if err != nil {
		t.Fatal(err)
	}
	file.Fd()
	t.Cleanup(func() { file.Close() })
}

// A descriptor that was made blocking stops neither Copy nor the process:
// deadlines are kept.
func TestBlocking(t *testing.T) {
	eachLine(t, lines[:4], func(t *testing.T, r *rig) {
		blocking(t, r.src)
		blocking(t, r.dst)
		r.start(t)
		r.write(t, 10)
		r.read(t, 10)
		r.bulk(t, 4<<20)
		blocking(t, r.src)
		blocking(t, r.dst)
		r.bulk(t, 4<<20)
		r.src.SetReadDeadline(time.Now())
		if n, err := r.wait(t); n != r.sent || class(err) != "deadline" {
			t.Errorf("Copy = %d, %v", n, err)
		}
	})
}

// The same for a destination whose reader stops: it was made blocking while
// Copy waited for it.
func TestBlockingWhileStalled(t *testing.T) {
	eachLine(t, lines[:4], func(t *testing.T, r *rig) {
		r.shrink()
		r.start(t)
		r.bulk(t, 1<<20)
		r.push(t)
		blocking(t, r.src)
		blocking(t, r.dst)
		before := r.live.Up().Written
		for r.live.Up().Written == before { // one more part of what is held goes out
			if r.received >= r.sent {
				t.Fatal("no part of it went out")
			}
			r.read(t, 4<<10)
			runtime.Gosched()
		}
		r.src.SetDeadline(time.Now())
		r.dst.SetDeadline(time.Now())
		if _, err := r.wait(t); class(err) != "deadline" {
			t.Error(err)
		}
	})
}
