package firstbytes

import "testing"

// A target for each parser alone, so that a fuzzer spends its time on one of them.

func FuzzTLS(f *testing.F)      { fuzz(f, TLS) }
func FuzzSSH(f *testing.F)      { fuzz(f, SSH) }
func FuzzHTTP(f *testing.F)     { fuzz(f, HTTP) }
func FuzzHTTP2(f *testing.F)    { fuzz(f, HTTP2) }
func FuzzPostgres(f *testing.F) { fuzz(f, Postgres) }
func FuzzRDP(f *testing.F)      { fuzz(f, RDP) }
func FuzzMQTT(f *testing.F)     { fuzz(f, MQTT) }
func FuzzAMQP(f *testing.F)     { fuzz(f, AMQP) }
func FuzzSOCKS5(f *testing.F)   { fuzz(f, SOCKS5) }
func FuzzXMPP(f *testing.F)     { fuzz(f, XMPP) }
func FuzzOpenVPN(f *testing.F)  { fuzz(f, OpenVPN) }

// bound is how many bytes suffice to be certain whether a client speaks a protocol.
func bound(p Protocol) int {
	if p == HTTP {
		return maxLine + 1
	}
	return 1500
}

// fuzz looks at each beginning of bytes: Maybe becomes Yes or No within a bound, and then nothing changes, whatever follows.
func fuzz(f *testing.F, p Protocol) {
	for _, c := range samples {
		if c.protocol == p.String() {
			f.Add([]byte(c.bytes))
		}
	}
	for _, b := range others {
		f.Add([]byte(b))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		whole := New().look(p, b)
		if whole == Maybe && len(b) > bound(p) {
			t.Errorf("still not certain after %d bytes", len(b))
		}
		for i := range min(len(b), 300) {
			if v := New().look(p, b[:i]); v != Maybe && v != whole {
				t.Fatalf("%d of %d bytes, %d of all %d", v, i, whole, len(b))
			}
		}
	})
}
