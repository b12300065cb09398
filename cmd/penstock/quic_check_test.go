package main

import (
	"crypto/tls"
	"strings"
	"testing"

	"golang.org/x/net/quic"

	"github.com/penstock/penstock/cmd/penstock/internal/testcerts"
	"github.com/penstock/penstock/internal/testwait"
)

// A check that shakes hands by QUIC works in the sandbox, and says of a member with another's certificate what is wrong; so it does in the
// workers that follow.
func TestQUICCheckShakesHands(t *testing.T) {
	t.Parallel()
	ca := testcerts.Authority(t, "Test CA")
	file, _ := ca.Write(t, t.TempDir(), "ca")
	server := quicEndpoint(t, &quic.Config{HandshakeTimeout: patience, TLSConfig: &tls.Config{Certificates: []tls.Certificate{ca.Issue(t, "web.test").TLS()}, NextProtos: []string{"h3"}, MinVersion: tls.VersionTLS13}})
	k := runKept(t, `listeners:
  right: {listen: "udp://127.0.0.1:0", to: right}
  wrong: {listen: "udp://127.0.0.1:0", to: wrong}
groups:
  right: {members: ["udp://{0}"], check: {quic: {every: 100ms, timeout: 60s, tls: {ca: "{1}", server-name: web.test}}}}
  wrong: {members: ["udp://{0}"], check: {quic: {every: 100ms, timeout: 60s, fall: 1, tls: {ca: "{1}", server-name: other.test}}}}
`, server.LocalAddr().String(), file)
	const why = "TLS: the certificate is for web.test, not for other.test"
	for _, replace := range []func(){func() {}, k.crash, k.upgrade} {
		replace()
		testwait.Until(t, "one member passes and the other does not", func() bool {
			all, err := k.admin.Groups(k.ctx())
			if err != nil || len(all.Groups) != 2 {
				return false
			}
			right, wrong := all.Groups[0].Members[0].Check, all.Groups[1].Members[0].Check
			return right != nil && right.OK && !right.CertificateExpires.IsZero() && wrong != nil && strings.HasPrefix(wrong.Error, why)
		})
	}
}
