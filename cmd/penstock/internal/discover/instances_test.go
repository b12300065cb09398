package discover

import (
	"strings"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// toldOf returns the members that an answer of Consul makes.
func toldOf(t *testing.T, answer string) string {
	t.Helper()
	list, err := readInstances(strings.NewReader(answer))
	if err != nil {
		t.Fatal(err)
	}
	f := newTestFeed()
	if err := tellInstances(f, list, spec.Discover{Network: spec.TCP}); err != nil {
		t.Fatal(err)
	}
	ts, _, _ := f.list()
	return showTargets(ts)
}

// An instance without an address, whose ID is the address of another one, does not take that one away.
func TestInstanceNamedAsAnAddress(t *testing.T) {
	got := toldOf(t, `[{"Service":{"ID":"a","Address":"10.0.0.1","Port":80}},{"Service":{"ID":"10.0.0.1:80","Address":"web.local","Port":80}}]`)
	if !strings.HasPrefix(got, "10.0.0.1:80") {
		t.Errorf("%q", got)
	}
}

// A weight that cannot be does not make others wrong.
func TestAbsurdWeights(t *testing.T) {
	got := toldOf(t, `[{"Service":{"ID":"a","Address":"10.0.0.1","Port":80,"Weights":{"Passing":9223372036854775807}}},{"Service":{"ID":"b","Address":"10.0.0.2","Port":80,"Weights":{"Passing":32768}}}]`)
	parts := strings.Split(got, ", ")
	if len(parts) != 2 || !strings.HasPrefix(parts[0], "10.0.0.1:80*256") || !strings.HasPrefix(parts[1], "10.0.0.2:80*128") {
		t.Errorf("%q", got)
	}
}
