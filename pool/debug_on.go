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

// A tracker records where each object of a pool is. It identifies objects by address, so
// only pointers, slices, maps and channels. It does not keep them alive.
type tracker struct {
	mu     sync.Mutex
	byID   map[uintptr]*objectState
	leaked []*objectState
}

// An objectState is what last happened to an object.
type objectState struct {
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
	return 0, nil // other kinds, and objects without memory of their own
}

// got notes that Get returns x.
func (w *tracker) got(x any) {
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
		// Returned by Get and never put: it was collected, and its memory is used again.
		w.leaked = append(w.leaked, f)
	}
	w.set(id, &objectState{stack: callers()})
}

// put notes that x was put.
func (w *tracker) put(x any) {
	id, memory := identity(x)
	if id == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if f := w.byID[id]; f != nil && f.pooled {
		panic("pool: put twice; it was put before at\n" + f.where())
	}
	w.set(id, &objectState{pooled: true, stack: callers(), sum: maphash.Bytes(seed, memory)})
}

// left notes that x left the pool for good.
func (w *tracker) left(x any) {
	id, memory := identity(x)
	w.mu.Lock()
	defer w.mu.Unlock()
	if f := w.byID[id]; f != nil && f.pooled {
		f.check(memory)
		delete(w.byID, id)
	}
}

func (w *tracker) set(id uintptr, f *objectState) {
	if w.byID == nil {
		w.byID = map[uintptr]*objectState{}
	}
	w.byID[id] = f
}

// leaks returns the stack of the Get of each object that was not put back.
func (w *tracker) leaks() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []string
	for _, f := range w.leaked {
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
func (f *objectState) check(memory []byte) {
	if maphash.Bytes(seed, memory) != f.sum {
		panic("pool: used after Put; it was put at\n" + f.where())
	}
}

func callers() []uintptr {
	stack := make([]uintptr, 32)
	return stack[:runtime.Callers(3, stack)]
}

func (f *objectState) where() string {
	var b strings.Builder
	for frames := runtime.CallersFrames(f.stack); ; {
		frame, more := frames.Next()
		fmt.Fprintf(&b, "%s\n\t%s:%d\n", frame.Function, frame.File, frame.Line)
		if !more {
			return b.String()
		}
	}
}
