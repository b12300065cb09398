package hooks

import (
	"reflect"
	"testing"
)

// Every open flow has a State, and 128 bytes is a size class of the allocator; the next is 144.
func TestFlowStateSize(t *testing.T) {
	if n := reflect.TypeFor[State]().Size(); n > 128 {
		t.Errorf("the state of a flow is %d bytes", n)
	}
}
