package discover

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/cmd/penstock/internal/testfleet"
	"github.com/penstock/penstock/internal/testnet"
)

// TestSlowServers: a server that is silent, or sends its answer byte by byte without end, is an error, and the members stay.
func TestSlowServers(t *testing.T) {
	testnet.CheckLeaks(t)
	faults := map[string]http.HandlerFunc{
		"silent": func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"dripping": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("X-Consul-Index", "7")
			for fmt.Fprint(w, "["); r.Context().Err() == nil; fmt.Fprint(w, " ") {
				http.NewResponseController(w).Flush()
				select {
				case <-r.Context().Done():
				case <-time.After(time.Millisecond):
				}
			}
		},
	}
	type server interface {
		Fault(http.HandlerFunc)
	}
	for _, kind := range []string{"consul", "kubernetes"} {
		for name, fault := range faults {
			t.Run(kind+" "+name, func(t *testing.T) {
				var s server
				var d spec.Discover
				if kind == "consul" {
					c := testfleet.NewConsul(t)
					c.Set("web", at(1))
					s, d = c, consulWeb(c)
				} else {
					k := testfleet.NewKubernetes(t)
					k.Put("shop", "web-1", "web", slice(80, up("10.0.0.1")))
					s, d = k, shopWeb(k)
				}
				w := watchWith(t, d, Options{slow: 300 * time.Millisecond})
				w.wants("10.0.0.1:80")
				s.Fault(fault)
				w.until("an error after a good list", func() bool { return w.err == errSlow || w.err != nil && w.errors > 1 })
				w.fails("")
				w.keeps("10.0.0.1:80")
				s.Fault(nil)
				w.wants("10.0.0.1:80")
			})
		}
	}
}

// TestComplaints: what is wrong is said once, as long as it stays so.
func TestComplaints(t *testing.T) {
	testnet.CheckLeaks(t)
	c := testfleet.NewConsul(t)
	name := at(1)
	name.Address = "web.example"
	c.Set("web", name, at(2))
	w := watchFor(t, consulWeb(c))
	w.wants("10.0.0.2:80")
	for n := 3; n < 6; n++ {
		c.Set("web", name, at(n))
		w.wants(fmt.Sprintf("10.0.0.%d:80", n))
	}
	if wrong := w.seen().wrong; len(wrong) != 1 {
		t.Errorf("said %q", wrong)
	}
}
