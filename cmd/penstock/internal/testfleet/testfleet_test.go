package testfleet_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/testfleet"
	"github.com/penstock/penstock/internal/testnet"
)

func TestMain(m *testing.M) { testnet.Main(m) }

func TestEtcd(t *testing.T) {
	testnet.CheckLeaks(t)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	s := testfleet.Etcd(t)
	first := s.URL
	post := func(path, body string) {
		t.Helper()
		res, err := client.Post(s.URL+path, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != http.StatusOK {
			t.Errorf("%s: %s", path, res.Status)
		}
	}
	post("/v3/kv/put", `{"key":"YQ==","value":"Yg=="}`)
	s.Pause()
	s.Resume()
	s.Restart()
	if s.URL != first {
		t.Errorf("%s after the restart, %s before", s.URL, first)
	}
	post("/v3/kv/range", `{"key":"YQ=="}`)
}
