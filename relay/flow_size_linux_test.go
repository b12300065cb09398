package relay

import (
	"reflect"
	"strconv"
	"testing"

	"github.com/penstock/penstock/internal/loop"
	"github.com/penstock/penstock/internal/testcost"
)

// An idle flow's memory is this, its slot, and its sockets. A chunk of stream flows
// fills what the runtime gives it: 27,264 bytes is a size class (runtime/sizeclasses.go),
// and what is above 32 KiB is rounded up to whole pages. One of datagram flows has the
// largest class below that.
func TestFlowSize(t *testing.T) {
	if n := reflect.TypeFor[streamFlow]().Size() * loop.ChunkSize; n > 27264 {
		t.Errorf("a chunk of stream flows is %d bytes", n)
	}
	if n := reflect.TypeFor[datagramFlow]().Size() * loop.ChunkSize; n > 32768 {
		t.Errorf("a chunk of datagram flows is %d bytes", n)
	}
}

// The memory of an idle flow, without its share of a chunk's rest.
func TestCostsOfIdleFlows(t *testing.T) {
	if strconv.IntSize != 64 {
		t.Skip("pointers have another size")
	}
	const bytes = "bytes of an idle flow"
	testcost.Check(t, "stream flow", bytes, int64(reflect.TypeFor[streamFlow]().Size()))
	testcost.Check(t, "datagram flow", bytes, int64(reflect.TypeFor[datagramFlow]().Size()))
}
