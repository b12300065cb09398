//go:build penstock_debug

package pool

import (
	"fmt"
	"hash/maphash"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"unsafe"
)

// debugging is whether the build has the tag penstock_debug.
const debugging = true

// A witness knows where each object of a pool is. It knows objects by address, and
// so only pointers, slices, maps and channels. It does not keep them alive.
type witness struct {
	mu   sync.Mutex
	byID map[uintptr]*fate
	lost []*fate
}

// A fate is what last happened to an object.
type fate struct {
	pooled bool
	stack  []uintptr // of the Get or Put
	sum    uint64    // of the object's memory when it was put
}

var seed = maphash.MakeSeed()

// identity returns an object's address and its memory.
func identity(x any) (id uintptr, memory []byte) {
	v := reflect.ValueOf(x)
	switch v.Kind() {
	case reflect.Pointer:
		if size := v.Type().Elem().Size(); size > 0 && !v.IsNil() {
			return v.Pointer(), unsafe.Slice((*byte)(v.UnsafePointer()), size)
		}
	case reflect.Slice:
		if size := uintptr(v.Cap()) * v.Type().Elem().Size(); size > 0 {
			return v.Pointer(), unsafe.Slice((*byte)(v.UnsafePointer()), size)
		}
	case reflect.Map, reflect.Chan, reflect.UnsafePointer:
		return v.Pointer(), nil
	}
	return 0, nil // others, and what has no memory of its own
}

// got notes that Get returns x.
func (w *witness) got(x any) {
	id, memory := identity(x)
	if id == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	f := w.byID[id]
	if f != nil && f.pooled {
		f.check(memory)
	} else if f != nil {
		// Got and never put: the collector had it, and its memory is used anew.
		w.lost = append(w.lost, f)
	}
	w.set(id, &fate{stack: callers()})
}

// put notes that x was put.
func (w *witness) put(x any) {
	id, memory := identity(x)
	if id == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if f := w.byID[id]; f != nil && f.pooled {
		panic("pool: put twice; it was put before at\n" + f.where())
	}
	w.set(id, &fate{pooled: true, stack: callers(), sum: maphash.Bytes(seed, memory)})
}

// left notes that x left the pool for good.
func (w *witness) left(x any) {
	id, memory := identity(x)
	w.mu.Lock()
	defer w.mu.Unlock()
	if f := w.byID[id]; f != nil && f.pooled {
		f.check(memory)
		delete(w.byID, id)
	}
}

func (w *witness) set(id uintptr, f *fate) {
	if w.byID == nil {
		w.byID = map[uintptr]*fate{}
	}
	w.byID[id] = f
}

// leaks returns the stacks of the Gets whose objects were not put since.
func (w *witness) leaks() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []string
	for _, f := range w.lost {
		all = append(all, f.where())
	}
	for _, f := range w.byID {
		if !f.pooled {
			all = append(all, f.where())
		}
	}
	slices.Sort(all)
	return all
}

// check panics if the object was written to while it was pooled.
func (f *fate) check(memory []byte) {
	if maphash.Bytes(seed, memory) != f.sum {
		panic("pool: used after Put; it was put at\n" + f.where())
	}
}

func callers() []uintptr {
	stack := make([]uintptr, 32)
	return stack[:runtime.Callers(3, stack)]
}

func (f *fate) where() string {
	var b strings.Builder
	for frames := runtime.CallersFrames(f.stack); ; {
		frame, more := frames.Next()
		fmt.Fprintf(&b, "%s\n\t%s:%d\n", frame.Function, frame.File, frame.Line)
		if !more {
			return b.String()
		}
	}
}
