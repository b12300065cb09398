package discover

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/cmd/penstock/internal/testfleet"
	"github.com/penstock/penstock/internal/testnet"
)

func listed(d *testfleet.Documents, path string) spec.Discover {
	return spec.Discover{Registry: spec.Registry{Kind: "http", Servers: d.URL}, Key: path, Network: spec.TCP, Every: 30 * time.Second}
}

func TestHTTPList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := testnet.NewNetwork()
		d := testfleet.NewMemoryDocuments(t, network)
		d.Set("/sd?app=web", `[{"targets": ["10.0.0.1:80", "10.0.0.2:80"], "labels": {"penstock_weight": "3", "penstock_check_port": "81", "rack": "a"}}, {"targets": ["[::1]:80", "tcp://10.0.0.4:80"]},
			{"targets": ["10.0.0.5:80", "10.0.0.1:80"], "labels": {"penstock_draining": "true", "penstock_zone": "b"}}]`)
		w := watchFor(t, network, listed(d, "/sd?app=web"))
		w.wants("10.0.0.1:80*3, 10.0.0.2:80*3, 10.0.0.4:80, 10.0.0.5:80@b draining, [::1]:80")
		if got, want := w.seen().list[0].Metadata, `{"penstock_check_port":"81","penstock_weight":"3","rack":"a"}`; got != want {
			t.Errorf("metadata %s, want %s", got, want)
		}
		for _, m := range w.seen().list {
			if want := uint16(81); (m.CheckPort == want) != (m.Weight == 3) || m.CheckAddress.IsValid() {
				t.Errorf("%+v", m)
			}
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		requests := d.Requests()
		if n := len(requests); n < 4 || n > 6 || d.Unchanged != n-1 || requests[0].Header.Get("X-Prometheus-Refresh-Interval-Seconds") != "30" {
			t.Errorf("%d requests in two minutes, %d answers that nothing has changed, %v", n, d.Unchanged, requests[0].Header)
		}
		d.Set("/sd?app=web", `[{"targets": ["10.0.0.1:80"]}]`)
		w.wants("10.0.0.1:80")
		d.Set("/sd?app=web", `[]`)
		w.wants("") // what becomes of the members is the group's decision: see lookups.vanish
	})
}

// What is wrong with one target leaves out this one, and what is wrong with the answer leaves all members as they are.
func TestHTTPListWrong(t *testing.T) {
	for document, want := range map[string]string{
		`[{"targets": ["10.0.0.1:80", "web.local:80"]}]`:                                                          `"web.local:80" is not an IP address and one port`,
		`[{"targets": ["10.0.0.1:80", "udp://10.0.0.2:80"]}]`:                                                     `is not a tcp address`,
		`[{"targets": ["10.0.0.1:80", "10.0.0.2:80-90"]}]`:                                                        `is not an IP address and one port`,
		`[{"targets": ["10.0.0.1:80"]}, {"targets": ["10.0.0.2:80"], "labels": {"penstock_weight": "0"}}]`:        `weight "0" is not a number from 1 to 256`,
		`[{"targets": ["10.0.0.1:80"]}, {"targets": ["10.0.0.1:80"], "labels": {"penstock_zone": "a b"}}]`:        `"a b" is not the name of a zone`,
		`[{"targets": ["10.0.0.1:80"]}, {"targets": ["10.0.0.2:80"], "labels": {"penstock_backup": "yes"}}]`:      `backup "yes" is neither true nor false`,
		`[{"targets": ["10.0.0.1:80"]}, {"targets": ["10.0.0.2:80"], "labels": {"penstock_check_port": "http"}}]`: `check-port "http" is not a number from 1 to 65535`,
	} {
		synctest.Test(t, func(t *testing.T) {
			network := testnet.NewNetwork()
			d := testfleet.NewMemoryDocuments(t, network)
			d.Set("/l", document)
			w := watchFor(t, network, listed(d, "/l"))
			w.wants("10.0.0.1:80")
			if wrong := strings.Join(w.seen().wrong, "; "); !strings.Contains(wrong, want) {
				t.Errorf("%s: said %q, want %q", document, wrong, want)
			}
		})
	}
	for document, want := range map[string]string{
		`null`: "no JSON array", `{}`: "no JSON array", `[{"targets": ["10.0.0.9:80"]}`: "unexpected EOF", `[1]`: "number", `[{"targets": "10.0.0.1:80"}]`: "string", ``: "EOF",
		`[{"targets": ["` + strings.Repeat("x", 3*maxHTTPElement) + `"]}]`: "too large",
	} {
		synctest.Test(t, func(t *testing.T) {
			network := testnet.NewNetwork()
			d := testfleet.NewMemoryDocuments(t, network)
			d.Set("/l", `[{"targets": ["10.0.0.1:80"]}]`)
			w := watchFor(t, network, listed(d, "/l"))
			w.wants("10.0.0.1:80")
			d.Set("/l", document)
			w.fails(want)
			w.keeps("10.0.0.1:80")
			d.Set("/l", `[{"targets": ["10.0.0.2:80"]}]`)
			w.wants("10.0.0.2:80")
		})
	}
}

// A server that answers with a page, redirects, or fails, has no list.
func TestHTTPListNoList(t *testing.T) {
	for want, h := range map[string]http.HandlerFunc{
		"instead of JSON":         func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("<html>")) },
		"redirects are not":       func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/m", http.StatusFound) },
		"404":                     http.NotFound,
		"304":                     func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotModified) },
		"does not answer in time": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
	} {
		synctest.Test(t, func(t *testing.T) {
			network := testnet.NewNetwork()
			d := testfleet.NewMemoryDocuments(t, network)
			d.Fault(h)
			w := watchFor(t, network, listed(d, "/l"))
			w.patience = 2 * listTimeout
			w.fails(want)
			if w.seen().have {
				t.Error("there was a list")
			}
			d.Fault(nil)
			d.Set("/l", `[{"targets": ["10.0.0.1:80"]}]`)
			w.wants("10.0.0.1:80")
		})
	}
}

func FuzzHTTPList(f *testing.F) {
	f.Add(`[{"targets": ["10.0.0.1:80", "[::1]:80"], "labels": {"penstock_weight": "3", "penstock_zone": "a", "penstock_backup": "true", "penstock_priority": "7"}}]`)
	f.Add(`[{"targets": ["10.0.0.1:80"]}, {"targets": ["10.0.0.1:80", ":80", "unix:/a"], "labels": {"penstock_draining": "no"}}, null]`)
	d := spec.Discover{Network: spec.TCP, Key: "/l"}
	f.Fuzz(func(t *testing.T, s string) {
		lists, err := readElements[httpList](strings.NewReader(s), maxHTTPElement, maxHTTPLists)
		if err != nil {
			return
		}
		out := newFeed(Options{LeftOut: func(spec.Discover, string) {}}, d)
		if err := tellLists(out, lists, d); err != nil {
			t.Fatal(err)
		}
		checkTargets(t, out)
	})
}
