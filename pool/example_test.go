package pool_test

import (
	"bytes"
	"fmt"
	"os"

	"github.com/penstock/penstock/pool"
)

// Buffers grow with use, and large ones are not kept.
func Example_buffers() {
	buffers := pool.Pool[*bytes.Buffer]{
		New:   func() *bytes.Buffer { return new(bytes.Buffer) },
		Reset: func(b *bytes.Buffer) bool { b.Reset(); return b.Cap() <= 64<<10 },
	}
	b := buffers.Get()
	fmt.Fprintf(b, "%d bottles", 99)
	fmt.Println(b)
	buffers.Put(b)
	fmt.Println(buffers.Stats().Kept)
	// Output:
	// 99 bottles
	// 1
}

// A pipe has two ends that must be closed.
type pipe struct{ r, w *os.File }

// A pool of pipes closes each pipe that leaves it: after two garbage collections without
// use, and beyond Max.
func Example_closing() {
	pipes := pool.Pool[pipe]{
		New: func() pipe {
			r, w, err := os.Pipe()
			if err != nil {
				return pipe{}
			}
			return pipe{r, w}
		},
		Reset: func(p pipe) bool { return p.r != nil },
		Drop:  func(p pipe) { p.r.Close(); p.w.Close() },
		Max:   64,
	}
	p := pipes.Get()
	p.w.WriteString("through")
	b := make([]byte, 7)
	p.r.Read(b)
	fmt.Printf("%s\n", b)
	pipes.Put(p) // only an empty pipe may come back

	fmt.Println(pipes.Drain(), "closed")
	_, err := p.w.WriteString("more")
	fmt.Println(err != nil)
	// Output:
	// through
	// 1 closed
	// true
}

func ExampleBuffers() {
	var buffers pool.Buffers
	b := buffers.Get(1000)
	fmt.Println(len(b), cap(b))
	buffers.Put(b)
	// Output:
	// 1000 1024
}
