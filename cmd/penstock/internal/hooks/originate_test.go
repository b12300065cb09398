package hooks

import (
	"crypto/tls"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/certs"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/relay"
)

// Without a name to verify, a handshake with a member fails.
func TestOriginateFailsClosed(t *testing.T) {
	c := certs.NewClients(certs.Options{}, nil).Of(&spec.ClientTLS{MinVersion: tls.VersionTLS12})
	if _, err := c.Config("", "", "", &relay.Addr{}); err == nil {
		t.Fatal("a configuration without a name to verify")
	}
	cfg := originate(c, new(clientTLS), "", &relay.Addr{})
	if cfg.VerifyConnection == nil || cfg.VerifyConnection(tls.ConnectionState{}) == nil {
		t.Error("a handshake with anybody succeeds")
	}
}
