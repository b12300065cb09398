package splice

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testwait"
)

// TestLikeIoCopy does the same to Copy and to io.Copy, and wants the same:
// bytes, count and kind of error. Each story sends chunks of random sizes, some
// of them while the reader rests, and then ends in one of the ways that a copy
// can end.
func TestLikeIoCopy(t *testing.T) {
	const stories = 2
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for _, scenario := range scenarios {
		t.Run(scenario.name, func(t *testing.T) {
			for _, l := range lines {
				if scenario.fits != nil && !scenario.fits(l) {
					continue
				}
				t.Run(l.String(), func(t *testing.T) {
					for i := range uint64(stories) {
						want := story(t, l, scenario, rand.New(rand.NewPCG(seed, i)), io.Copy)
						got := story(t, l, scenario, rand.New(rand.NewPCG(seed, i)), func(dst io.Writer, src io.Reader) (int64, error) {
							return Copy(dst.(net.Conn), src.(net.Conn))
						})
						if got != want {
							t.Errorf("story %d: Copy: %v; io.Copy: %v", i, got, want)
						}
					}
				})
			}
		})
	}
}

// outcome is how a story ended.
type outcome struct {
	n        int64
	received int64 // before the end
	class    string
	then     string // what the reader saw once dst was closed
}

func (o outcome) String() string {
	return fmt.Sprintf("n=%d, %s; the reader got %d, then %s", o.n, o.class, o.received, o.then)
}

type scenario struct {
	name string
	fits func(line) bool // nil: all
	do   func(*testing.T, *rig)
}

var scenarios = []scenario{
	{"source ends", nil, func(t *testing.T, r *rig) { endWriting(r.from) }},
	{"source resets", func(l line) bool { return l.src.canReset() }, func(t *testing.T, r *rig) {
		unread(t, r.src)
		reset(r.from)
	}},
	{"read deadline", nil, func(t *testing.T, r *rig) { r.src.SetReadDeadline(time.Now().Add(time.Millisecond)) }},
	{"source closed", nil, func(t *testing.T, r *rig) { r.src.Close() }},
	{"destination closed", nil, func(t *testing.T, r *rig) {
		r.dst.Close()
		r.prod()
	}},
	{"destination resets", func(l line) bool { return l.dst.canReset() }, func(t *testing.T, r *rig) {
		r.write(t, 2) // of which one stays unread
		r.read(t, 1)
		reset(r.to)
		r.prod()
	}},
	{"write deadline", nil, func(t *testing.T, r *rig) {
		r.dst.SetWriteDeadline(time.Unix(1, 0))
		r.prod()
	}},
}

// prod sends bytes until the copy has noticed.
func (r *rig) prod() {
	for {
		select {
		case <-r.done:
			return
		default:
			r.from.SetWriteDeadline(time.Now().Add(10 * time.Millisecond))
			m, err := r.from.Write(pattern().At(r.sent, 1))
			if r.sent += int64(m); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
				return
			}
			select {
			case <-r.done:
			case <-time.After(time.Millisecond):
			}
		}
	}
}

func (r *rig) copies(copy func(io.Writer, io.Reader) (int64, error)) {
	defer close(r.done)
	r.n, r.err = copy(r.dst, r.src)
}

func story(t *testing.T, l line, e scenario, random *rand.Rand, copy func(io.Writer, io.Reader) (int64, error)) outcome {
	t.Helper()
	r := newRig(t, l)
	defer func() {
		for _, c := range []net.Conn{r.src, r.dst, r.from, r.to} {
			c.Close()
		}
	}()
	r.done = make(chan struct{})
	go r.copies(copy)
	for range random.IntN(6) {
		n := 1 << random.IntN(19)
		n += random.IntN(n)
		r.bulk(t, n)
	}
	// A turn that has moved the last byte may still run, and would carry more.
	testwait.Until(t, "the copy waits for its source", func() bool { _, blocked := testwait.Goroutines("splice.(*rig).copies("); return blocked == 1 })
	e.do(t, r)
	n, err := r.wait(t)
	o := outcome{n: n, received: r.received, class: class(err)}
	r.dst.Close()
	o.then = class(r.drain(t))
	return o
}
