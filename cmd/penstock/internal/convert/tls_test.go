package convert_test

import (
	"strings"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/config"
	"github.com/penstock/penstock/cmd/penstock/internal/convert"
	"github.com/penstock/penstock/cmd/penstock/internal/convert/haproxy"
	"github.com/penstock/penstock/cmd/penstock/internal/convert/nginx"
	"github.com/penstock/penstock/cmd/penstock/internal/testconvert"
)

// Nobody could say whose certificate a member without a host must have.
func TestVerifiedMembersHaveHosts(t *testing.T) {
	ofNginx := func(server, more string) string {
		return "stream {\nserver { listen 1; proxy_pass a; proxy_ssl on; proxy_ssl_verify on; proxy_ssl_trusted_certificate /ca.pem;\n" + more +
			"}\nupstream a { server " + server + "; }\n}\n"
	}
	ofHAProxy := func(server string) string { return "listen a\nmode tcp\nbind 127.0.0.1:1\n" + server + "\n" }
	for _, c := range []struct {
		from *convert.Reader
		text string
		has  bool // a group
	}{
		{nginx.Reader, ofNginx("192.0.2.1:1", "proxy_ssl_name $ssl_server_name;"), true},
		{nginx.Reader, ofNginx("b.example:1", "proxy_ssl_name $ssl_server_name;"), true},
		{nginx.Reader, ofNginx("unix:/a", "proxy_ssl_name $ssl_server_name;"), false},
		{nginx.Reader, ofNginx("b.example service=http resolve", "proxy_ssl_name $ssl_server_name;"), false},
		{nginx.Reader, ofNginx("unix:/a", "proxy_ssl_name b.example;"), true},
		{nginx.Reader, ofNginx("unix:/a", ""), true}, // a
		{haproxy.Reader, ofHAProxy("server s 192.0.2.1:1 ssl"), true},
		{haproxy.Reader, ofHAProxy("server s unix@/a ssl"), false},
		{haproxy.Reader, ofHAProxy("server s unix@/a ssl verify none"), true},
		{haproxy.Reader, ofHAProxy("server s unix@/a ssl sni str(b.example)"), true},
		{haproxy.Reader, ofHAProxy("server-template s 2 _http._tcp.b.example resolvers r ssl"), false},
	} {
		r, err := testconvert.Text(c.from, "f", c.text)
		if err != nil {
			if c.has {
				t.Errorf("%v of\n%s", err, c.text)
			}
			continue
		}
		if _, err := config.Parse("f.yaml", r.YAML); err != nil {
			t.Errorf("%v\n%s\nof\n%s", err, r.YAML, c.text)
		}
		if has := strings.Contains(string(r.YAML), "    tls:"); has != c.has {
			t.Errorf("%s\n%v\nof\n%s", r.YAML, r.Notes, c.text)
		}
	}
}
