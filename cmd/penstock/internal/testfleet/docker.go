package testfleet

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"testing"

	"github.com/penstock/penstock/internal/testnet"
)

// Docker stands for a Docker daemon: its running containers and its events. TestDocker of cmd/penstock makes the same of a real one.
type Docker struct {
	*fake
	containers map[string]string // JSON, by ID
	events     []string
	ended      int // how often streams of events were ended
}

// NewDocker starts a Docker without containers, whose socket is at a path.
func NewDocker(tb testing.TB, path string) *Docker {
	d := &Docker{containers: map[string]string{}}
	d.fake = &fake{URL: "unix:" + path, tb: tb, address: path, serve: d.handle, changed: make(chan struct{})}
	d.Start()
	tb.Cleanup(d.Stop)
	return d
}

// NewMemoryDocker starts a Docker without containers in a network in memory.
func NewMemoryDocker(tb testing.TB, network *testnet.Network) *Docker {
	d := &Docker{containers: map[string]string{}}
	d.fake = newFake(tb, network, false, d.handle)
	return d
}

// Run adds or changes a container, and tells it. The rest are members of a JSON object.
func (d *Docker) Run(id, rest string) {
	d.set(id, fmt.Sprintf(`{"Id": %q, "State": "running", "Status": "Up 2 seconds", %s}`, id, rest))
	d.Event("start", id, "")
}

// Die removes a container, and tells it.
func (d *Docker) Die(id string) {
	d.set(id, "")
	d.Event("die", id, "")
}

func (d *Docker) set(id, container string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.containers[id] = container; container == "" {
		delete(d.containers, id)
	}
}

// Event tells an event of a container.
func (d *Docker) Event(action, id, signal string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := map[string]any{"Type": "container", "Action": action, "Actor": map[string]any{"ID": id, "Attributes": map[string]string{"name": id, "signal": signal}}, "time": 1}
	b, _ := json.Marshal(e)
	d.events = append(d.events, string(b)+"\n")
	d.touch()
}

// EndEvents ends all streams of events once.
func (d *Docker) EndEvents() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ended++
	d.touch()
}

func (d *Docker) handle(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	w.Header().Set("Content-Type", "application/json")
	switch r.URL.Path {
	case "/containers/json":
		defer d.mu.Unlock()
		fmt.Fprint(w, "[")
		for i, id := range slices.Sorted(maps.Keys(d.containers)) {
			if i > 0 {
				fmt.Fprint(w, ",")
			}
			fmt.Fprint(w, d.containers[id])
		}
		fmt.Fprint(w, "]")
	case "/events":
		d.stream(w, r)
	default:
		d.mu.Unlock()
		http.NotFound(w, r)
	}
}

// stream sends events from now on. It is called with the lock held, and gives it up.
func (d *Docker) stream(w http.ResponseWriter, r *http.Request) {
	next, ended := len(d.events), d.ended
	for d.ended == ended && d.fault == nil {
		changed := d.changed
		for ; next < len(d.events); next++ {
			fmt.Fprint(w, d.events[next])
		}
		d.mu.Unlock()
		w.(http.Flusher).Flush()
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
		d.mu.Lock()
	}
	d.mu.Unlock()
}
