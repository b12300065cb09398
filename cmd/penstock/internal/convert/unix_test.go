package convert_test

import (
	"strings"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/convert"
	"github.com/penstock/penstock/cmd/penstock/internal/convert/haproxy"
	"github.com/penstock/penstock/cmd/penstock/internal/convert/nginx"
	"github.com/penstock/penstock/cmd/penstock/internal/testconvert"
)

// Clients of a Unix socket have no address: a rule with a range matches none of them, and the
// first rule without one decides. A socket that refuses everybody is not opened to all.
func TestAccessOfUnixSockets(t *testing.T) {
	for _, c := range []struct {
		from     *convert.Reader
		rules    string
		admitted bool
	}{
		{nginx.Reader, "allow 10.0.0.0/8; deny all;", false},
		{nginx.Reader, "deny all; allow unix:;", false},
		{nginx.Reader, "deny unix:; allow all;", false},
		{nginx.Reader, "allow unix:; deny all;", true},
		{nginx.Reader, "allow 10.0.0.0/8; allow all; deny all;", true},
		{nginx.Reader, "deny 10.1.0.0/16; allow 10.0.0.0/8;", true},
		{nginx.Reader, "allow 10.1.0.0/16; deny 10.0.0.0/8; allow all;", true},
		{haproxy.Reader, " tcp-request connection reject unless { src 10.0.0.0/8 }\n", false},
		{haproxy.Reader, " tcp-request connection accept if { src 10.0.0.0/8 }\n tcp-request connection reject\n", false},
		{haproxy.Reader, " tcp-request connection reject if { src 10.0.0.0/8 }\n", true},
	} {
		text := "stream { server { listen unix:/run/l.sock; " + c.rules + " proxy_pass 192.0.2.1:1; } server { listen 1; proxy_pass 192.0.2.1:1; } }"
		if c.from == haproxy.Reader {
			text = "listen l\n bind /run/l.sock\n" + c.rules + " server a 192.0.2.1:1\nlisten m\n bind :1\n server a 192.0.2.1:1\n"
		}
		r, err := testconvert.Text(c.from, "f", text)
		if err != nil {
			t.Errorf("%s: %v", c.rules, err)
			continue
		}
		testconvert.Valid(t, c.rules, r)
		if got := strings.Contains(string(r.YAML), "unix:///run/l.sock"); got != c.admitted {
			t.Errorf("%q: the socket is open: %v\n%s%v", c.rules, got, r.YAML, r.Notes)
		}
	}
}
