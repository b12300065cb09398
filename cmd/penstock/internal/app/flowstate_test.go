package app

import (
	"reflect"
	"testing"
)

// Every open flow has a flowState, and 128 bytes is a size class of the allocator; the next is 144.
func TestFlowStateSize(t *testing.T) {
	if n := reflect.TypeFor[flowState]().Size(); n > 128 {
		t.Errorf("the state of a flow is %d bytes", n)
	}
}
