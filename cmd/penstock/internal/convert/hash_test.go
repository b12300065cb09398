package convert_test

import (
	"strings"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/convert"
	"github.com/penstock/penstock/cmd/penstock/internal/convert/haproxy"
	"github.com/penstock/penstock/cmd/penstock/internal/convert/nginx"
	"github.com/penstock/penstock/cmd/penstock/internal/testconvert"
)

// A hash of the server name stays one.
func TestHashOfServerName(t *testing.T) {
	for from, text := range map[*convert.Reader]string{
		haproxy.Reader: "listen l\n bind :1\n balance hash req.ssl_sni\n server a 192.0.2.1:1\n server b 192.0.2.2:1\n",
		nginx.Reader:   "stream { upstream u { hash $ssl_preread_server_name; server 192.0.2.1:1; server 192.0.2.2:1; } server { listen 1; ssl_preread on; proxy_pass u; } }",
	} {
		r, err := testconvert.Text(from, "f", text)
		if err != nil {
			t.Fatal(err)
		}
		testconvert.Valid(t, from.Name, r)
		if !strings.Contains(string(r.YAML), "hash: sni\n") || len(r.Notes) > 0 {
			t.Errorf("%s: %v\n%s", from.Name, r.Notes, r.YAML)
		}
	}
}
