package ledger

import (
	"encoding/binary"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"sync"

	"github.com/penstock/penstock/internal/sys"
)

// The part of the stats has two halves, of which one is used. Each has the names of its words, and the
// words. A layout with other names goes to the other half, so that a kill at any time leaves one of them
// complete.
const (
	statsNames = 64 << 10
	statsWords = 2048
	statsHalf  = statsNames + statsWords*8
)

// StatsOf returns the counters of the ledger, in place: T is a struct of 64-bit integers, and of structs
// and arrays of them. What another process has counted in fields of the same name and index is there;
// what T does not have is forgotten. The memory is valid until Close. The error says that T is something
// else, or too large.
func StatsOf[T any](l *Ledger) (*T, error) {
	x := wordNamesOf(reflect.TypeFor[T]())
	if x.err != nil {
		return nil, x.err
	}
	names, text := x.names, x.text
	if len(text) > statsNames-4 || len(names) > statsWords {
		return nil, fmt.Errorf("ledger: %d counters are too many", len(names))
	}
	half := int(l.word(statsAt) & 1)
	old, words := l.statsHalf(half)
	if old != text {
		before := make(map[string]uint64)
		if old != "" {
			for i, name := range strings.Split(old, "\n") {
				if i < statsWords {
					before[name] = binary.NativeEndian.Uint64(words[8*i:])
				}
			}
		}
		half ^= 1
		b := l.header.stats.of(l.mem)[half*statsHalf : (half+1)*statsHalf]
		clear(b)
		sys.Store32(b, uint32(len(text)))
		copy(b[4:], text)
		words = b[statsNames:]
		for i, name := range names {
			binary.NativeEndian.PutUint64(words[8*i:], before[name])
		}
		l.setWord(statsAt, uint64(half))
	}
	return sys.Cast[T](words), nil
}

// wordNames has the names of the words of a type.
type wordNames struct {
	names []string
	text  string // all of them
	err   error
}

// typeNames has those that were asked for, by type. They never change.
var typeNames sync.Map

func wordNamesOf(t reflect.Type) *wordNames {
	if x, ok := typeNames.Load(t); ok {
		return x.(*wordNames)
	}
	x := new(wordNames)
	x.names, x.err = appendWords(nil, "", t)
	x.text = strings.Join(x.names, "\n")
	typeNames.Store(t, x)
	return x
}

// statsHalf returns the names and the words of one half; no names if they are damaged.
func (l *Ledger) statsHalf(i int) (names string, words []byte) {
	b := l.header.stats.of(l.mem)[i*statsHalf : (i+1)*statsHalf]
	if n := sys.Load32(b); n <= statsNames-4 {
		names = string(b[4 : 4+n])
	}
	return names, b[statsNames:]
}

// appendWords appends the names of the words that a type consists of.
func appendWords(names []string, name string, t reflect.Type) ([]string, error) {
	var err error
	switch t.Kind() {
	case reflect.Int64, reflect.Uint64:
		return append(names, name), nil
	case reflect.Struct:
		for i := range t.NumField() {
			f := t.Field(i)
			field := f.Name
			if name != "" {
				field = name + "." + f.Name
			}
			if names, err = appendWords(names, field, f.Type); err != nil {
				return nil, err
			}
		}
		return names, nil
	case reflect.Array:
		for i := range t.Len() {
			if names, err = appendWords(names, name+"["+strconv.Itoa(i)+"]", t.Elem()); err != nil {
				return nil, err
			}
		}
		return names, nil
	}
	return nil, fmt.Errorf("ledger: counter %s is a %v", name, t)
}
