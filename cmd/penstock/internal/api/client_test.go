package api

import (
	"strings"
	"testing"

	"github.com/penstock/penstock/internal/testnet"
)

func TestMain(m *testing.M) { testnet.Main(m) }

func TestClientAddress(t *testing.T) {
	for address, good := range map[string]bool{
		"unix:///run/a.sock": true, "tcp://127.0.0.1:9180": true,
		"": false, "unix:a": false, "unix://a": false, "tcp://": false, "http://127.0.0.1": false, "/run/a.sock": false,
	} {
		if c, err := NewClient(address, ""); (err == nil) != good || err != nil && !strings.Contains(err.Error(), "allowed:") {
			t.Errorf("%q: %v, %v", address, c, err)
		}
	}
}
