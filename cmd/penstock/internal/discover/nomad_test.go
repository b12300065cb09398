package discover

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/cmd/penstock/internal/testfleet"
	"github.com/penstock/penstock/internal/testnet"
)

const nomadOne = `{"ID": "_nomad-task-1", "ServiceName": "web", "Namespace": "default", "NodeID": "n1", "Datacenter": "dc1", "JobID": "shop", "AllocID": "a1", "Tags": ["v2", "penstock.weight=4"], "Address": "10.0.0.1", "Port": 22686, "CreateIndex": 5}`

func TestNomad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := testnet.NewNetwork()
		s := testfleet.NewMemoryDocuments(t, network)
		s.Set("/v1/service/web?namespace=shop", `[`+nomadOne+`, {"ID": "2", "Address": "10.0.0.2", "Port": 80, "Tags": ["v2", "penstock.zone=b", "penstock.draining=true"]}, {"ID": "3", "Address": "10.0.0.3", "Port": 80, "Tags": ["v1"]},
			{"ID": "4", "Address": "web.local", "Port": 80, "Tags": ["v2"]}, {"ID": "5", "Address": "10.0.0.5", "Port": 0, "Tags": ["v2"]}, {"ID": "6", "Address": "10.0.0.6", "Port": 80, "Tags": ["v2", "penstock.weight=many"]}]`)
		token := filepath.Join(t.TempDir(), "token")
		if err := os.WriteFile(token, []byte("secret\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		w := watchFor(t, network, spec.Discover{Registry: spec.Registry{Kind: "nomad", Servers: s.URL, TokenFile: token}, Key: "web", Network: spec.TCP, Tags: "v2", Namespace: "shop"})
		w.wants("10.0.0.1:22686*4@dc1, 10.0.0.2:80@b draining")
		if got, want := w.seen().list[0].Metadata, `{"alloc":"a1","job":"shop","node":"n1"}`; got != want {
			t.Errorf("metadata %s, want %s", got, want)
		}
		wrong := strings.Join(w.seen().wrong, "\n")
		for _, want := range []string{`"service 4": "web.local", port 80: an IP address`, `"service 5": "10.0.0.5", port 0`, `"service 6": weight "many"`} {
			if !strings.Contains(wrong, want) {
				t.Errorf("said %q, want %q", wrong, want)
			}
		}
		s.Set("/v1/service/web?namespace=shop", `[`+nomadOne+`]`)
		w.wants("10.0.0.1:22686*4@dc1")
		for i, r := range s.Requests() {
			if r.Header.Get("X-Nomad-Token") != "secret" || (i == 0) == r.URL.Query().Has("index") {
				t.Errorf("request %d: %s, %v", i, r.URL, r.Header)
			}
		}
		s.Fault(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "Permission denied", http.StatusForbidden) })
		w.fails("403 Forbidden: Permission denied")
		s.Fault(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Write([]byte("[]"))
		})
		w.fails("no valid X-Nomad-Index: is this Nomad?")
		w.keeps("10.0.0.1:22686*4@dc1")
	})
}

func FuzzNomad(f *testing.F) {
	f.Add(`[` + nomadOne + `]`)
	f.Add(`[{"Address": "::1", "Port": 65536, "Tags": ["penstock.zone=", "penstock.priority=-1"]}, null]`)
	f.Fuzz(func(t *testing.T, s string) {
		d := spec.Discover{Network: spec.TCP, Key: "web", Tags: "v2"}
		_, tell, err := nomad.read(strings.NewReader(s), &d)
		if err != nil {
			return
		}
		out := newFeed(Options{LeftOut: func(spec.Discover, string) {}}, d)
		if err := tell(out); err != nil {
			t.Fatal(err)
		}
		checkTargets(t, out)
	})
}
