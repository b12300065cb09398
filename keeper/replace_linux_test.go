package keeper

import (
	"os"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
)

// A worker that is started while the readers pause for the keeper's own replacement, as SIGUSR2 does: the keeper is not
// replaced, and reads what its workers say again.
func TestStartWhileReadersPause(t *testing.T) {
	r := &runner{cfg: Config{}.withDefaults(), conns: make(map[int]*conn), events: make(chan event), answers: make(chan answer, 1)}
	r.m = newMachine(r.cfg, 100, r)
	theirs := make(map[int]int)
	begin := func(id int) {
		ours, other, e := sys.Pair()
		if e != 0 {
			t.Fatal(e)
		}
		c, err := newConn(id, os.Getpid(), ours, -1, r.events)
		if err != nil {
			t.Fatal(err)
		}
		r.conns[id], theirs[id] = c, other
		go c.read()
	}
	b := &executable{path: "new"}
	begin(1)
	r.m.active = &peer{id: 1, binary: b, hello: true, ready: true}
	r.onAnswer(answer{binary: b})
	begin(2)
	r.m.standby = &peer{id: 2, binary: b}
	next := func(want what) event {
		t.Helper()
		select {
		case e := <-r.events:
			if e.what != want {
				t.Fatalf("event %d of connection %d, want %d", e.what, e.id, want)
			}
			return e
		case <-time.After(patience):
			t.Fatal("no event")
		}
		panic("unreachable")
	}
	r.onEvent(next(wasPaused))
	r.tryExecute(make(chan os.Signal))
	if r.replacing != nil {
		t.Error("it waits for a reader that was not asked to pause")
	}
	for id, fd := range theirs {
		var box outbox
		box.fd, box.socket = fd, new(sys.FDBuffer)
		if !box.send(message{kind: kindAlive}.encode(), nil) {
			t.Fatal("not sent")
		}
		e := next(gotMessage)
		if e.id != id {
			t.Errorf("a message of worker %d, want %d", e.id, id)
		}
		e.from.next <- struct{}{}
		sys.Linux{}.Close(fd)
		next(hungUp)
		close(e.from.dead)
		next(wasGone)
		e.from.file.Close()
	}
}
