package fleet

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"
)

// At most as many hold a lock as there are places, however many want it.
func TestLock(t *testing.T) {
	w := newWorld(t)
	var now, most, done atomic.Int64
	const people, places = 12, 3
	errs := make(chan error, people)
	for i := range people {
		go func() {
			l, err := Acquire(t.Context(), LockConfig{Client: w.client, Key: testKey, Name: "roll", Places: places, Holder: Holder{By: fmt.Sprint(i)}})
			if err != nil {
				errs <- err
				return
			}
			n := now.Add(1)
			for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
			}
			if n == places || done.Load() > 0 {
				done.Add(1)
			}
			time.Sleep(5 * time.Millisecond) // others may come in, wrongly
			now.Add(-1)
			l.Release()
			errs <- nil
		}()
	}
	for range people {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	if most.Load() > places {
		t.Errorf("%d held it at the same time; allowed: %d", most.Load(), places)
	}
}

// The place of a holder that dies is given on; a holder that is cut off learns that it has lost the lock.
func TestLockHolderDies(t *testing.T) {
	w := newWorld(t)
	take := func(ctx context.Context, by string, full func([]Holder)) (*Lock, error) {
		return Acquire(ctx, LockConfig{Client: w.open(), Key: testKey, Name: "roll", Places: 1, Holder: Holder{By: by}, TTL: 4 * time.Second, Full: full})
	}
	dead, err := take(t.Context(), "dead", nil)
	if err != nil {
		t.Fatal(err)
	}
	second, err := take(t.Context(), "second", func(h []Holder) {
		if h[0].By != "dead" {
			t.Errorf("it waits for %q", h[0].By)
		}
		dead.stop(nil) // as if it was killed: the lease is not kept alive
	})
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-dead.done:
	default:
		t.Error("it did not wait for the one that is dead")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := take(ctx, "third", nil); err == nil {
		select {
		case <-second.Lost(): // on a machine that is very busy
			t.Skip("the lease ended too soon")
		default:
			t.Error("two have it")
		}
	}
	w.server.Pause()
	select {
	case <-second.Lost():
	case <-time.After(patience):
		t.Error("it does not know that the lock is lost")
	}
	w.server.Resume()
	second.Release()
}

// The log keeps the last entries.
func TestLog(t *testing.T) {
	w := newWorld(t)
	at := time.Now()
	for i := range 40 {
		if err := Log(t.Context(), w.client, testKey, Entry{At: at.Add(time.Duration(i) * time.Second), By: "me", What: "test", To: fmt.Sprint(i), Text: "one\nline"}); err != nil {
			t.Fatal(err)
		}
	}
	list, err := ReadLog(t.Context(), w.client, testKey, 3)
	if err != nil || len(list) != 3 || list[0].To != "39" || list[0].Text != "one line" {
		t.Errorf("%+v, %v", list, err)
	}
	if err := trimLog(t.Context(), w.client, testKey, 10); err != nil {
		t.Fatal(err)
	}
	if list, err = ReadLog(t.Context(), w.client, testKey, 100); err != nil || len(list) != 10 || list[9].To != "30" {
		t.Errorf("%d entries, %v", len(list), err)
	}
}

// A key without a lease, which nobody but a person can have written, keeps nobody waiting.
func TestLockGarbage(t *testing.T) {
	w := newWorld(t)
	if _, err := w.client.Put(t.Context(), lockPrefix(testKey, "roll")+"zzz", []byte("{"), 0); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	l, err := Acquire(ctx, LockConfig{Client: w.client, Key: testKey, Name: "roll", Places: 1})
	if err != nil {
		t.Fatal(err)
	}
	l.Release()
}
