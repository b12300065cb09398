//go:build penstock_debug

package pool

import (
	"strings"
	"testing"
)

// panics returns what f panics with.
func panics(t *testing.T, f func()) (message string) {
	t.Helper()
	defer func() {
		message, _ = recover().(string)
		if message == "" {
			t.Error("no panic")
		}
	}()
	f()
	return
}

func putHere[T any](p *Pool[T], x T) { p.Put(x) }
func getHere[T any](p *Pool[T]) T    { return p.Get() }

func TestDebugDoublePut(t *testing.T) {
	var p Pool[*int]
	x := new(int)
	putHere(&p, x)
	if m := panics(t, func() { p.Put(x) }); !strings.Contains(m, "put twice") || !strings.Contains(m, "putHere") {
		t.Errorf("panic: %s", m)
	}
	var b Pool[[]byte]
	buf := make([]byte, 10)
	b.Put(buf)
	panics(t, func() { b.Put(buf[:5]) })
}

func TestDebugUseAfterPut(t *testing.T) {
	withProcs(t, 1)
	var p Pool[*int]
	x := new(int)
	putHere(&p, x)
	*x = 1
	if m := panics(t, func() { p.Get() }); !strings.Contains(m, "used after Put") || !strings.Contains(m, "putHere") {
		t.Errorf("panic: %s", m)
	}
	var b Buffers
	buf := b.Get(100)
	b.Put(buf)
	if buf[50] != poisoned {
		t.Error("a pooled buffer is not poisoned")
	}
	buf[50] = 1
	panics(t, func() { b.Get(100) })
}

func TestDebugLeaks(t *testing.T) {
	p := Pool[*int]{New: func() *int { return new(int) }}
	x := getHere(&p)
	if l := p.Leaks(); len(l) != 1 || !strings.Contains(l[0], "getHere") {
		t.Errorf("leaks: %q", l)
	}
	p.Put(x)
	if l := p.Leaks(); len(l) != 0 {
		t.Errorf("leaks: %q", l)
	}
	p.Drain()
	p.Put(x) // dropped in between: no double Put
}
