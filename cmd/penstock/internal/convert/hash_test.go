package convert

import (
	"strings"
	"testing"
)

// A hash of the server name stays one.
func TestHashOfServerName(t *testing.T) {
	for from, text := range map[Product]string{
		HAProxy: "listen l\n bind :1\n balance hash req.ssl_sni\n server a 192.0.2.1:1\n server b 192.0.2.2:1\n",
		Nginx:   "stream { upstream u { hash $ssl_preread_server_name; server 192.0.2.1:1; server 192.0.2.2:1; } server { listen 1; ssl_preread on; proxy_pass u; } }",
	} {
		r, err := Convert(from, []File{{"f", []byte(text)}}, Source{})
		if err != nil {
			t.Fatal(err)
		}
		valid(t, string(from), r)
		if !strings.Contains(string(r.YAML), "hash: sni\n") || len(r.Notes) > 0 {
			t.Errorf("%s: %v\n%s", from, r.Notes, r.YAML)
		}
	}
}
