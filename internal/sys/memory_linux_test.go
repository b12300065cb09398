package sys

import (
	"reflect"
	"testing"
)

// Wipe overwrites what is in a value, leaves what it points to, and a value that is nowhere.
func TestWipe(t *testing.T) {
	type inner struct {
		key  [4]uint32
		name string
	}
	other := 7
	v := struct {
		inner
		mask [12]byte
		p    *int
	}{inner{[4]uint32{1, 2, 3, 4}, "a"}, [12]byte{5}, &other}
	Wipe(reflect.ValueOf(v))
	if v.key[3] != 4 || v.mask[0] != 5 {
		t.Errorf("a copy was given, and it is %v", v)
	}
	Wipe(reflect.ValueOf(&v).Elem())
	if v.key != [4]uint32{} || v.mask != [12]byte{} || v.name != "a" || v.p != &other || other != 7 {
		t.Errorf("it is %v, and what it points to %d", v, other)
	}
	Wipe(reflect.Value{})
}
