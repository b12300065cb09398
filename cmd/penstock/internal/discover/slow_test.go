package discover

import (
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/testfleet"
	"github.com/penstock/penstock/internal/testnet"
)

// TestSlowServers: a server that is silent, or sends its answer byte by byte without end, is an error, and the members stay.
func TestSlowServers(t *testing.T) {
	faults := map[string]http.HandlerFunc{
		"silent": func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"dripping": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("X-Consul-Index", "7")
			for fmt.Fprint(w, "["); r.Context().Err() == nil; fmt.Fprint(w, " ") {
				http.NewResponseController(w).Flush()
				select {
				case <-r.Context().Done():
				case <-time.After(time.Second):
				}
			}
		},
	}
	for _, kind := range []string{"consul", "kubernetes"} {
		for name, fault := range faults {
			t.Run(kind+" "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					network := testnet.NewNetwork()
					s, d := registry(t, network, kind)
					s.Fault(fault)
					w := watchFor(t, network, d)
					w.patience = time.Hour // a server may take its time, minutes
					w.fails("")            // also of the first request
					s.Fault(nil)
					w.wants("10.0.0.1:80")
					s.Fault(fault)
					w.until("errors of more than one request", func() bool { return w.err != nil && w.errors > 1 })
					w.fails("")
					w.keeps("10.0.0.1:80")
					s.Fault(nil)
					w.wants("10.0.0.1:80")
				})
			})
		}
	}
}

// TestComplaints: what is wrong is said once, as long as it stays so.
func TestComplaints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := testnet.NewNetwork()
		c := testfleet.NewMemoryConsul(t, network)
		name := at(1)
		name.Address = "web.example"
		c.Set("web", name, at(2))
		w := watchFor(t, network, consulWeb(c))
		w.wants("10.0.0.2:80")
		for n := 3; n < 6; n++ {
			c.Set("web", name, at(n))
			w.wants(fmt.Sprintf("10.0.0.%d:80", n))
		}
		if wrong := w.seen().wrong; len(wrong) != 1 {
			t.Errorf("said %q", wrong)
		}
	})
}
