package convert_test

import (
	"strings"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/convert"
	"github.com/penstock/penstock/cmd/penstock/internal/convert/haproxy"
	"github.com/penstock/penstock/cmd/penstock/internal/convert/nginx"
	"github.com/penstock/penstock/cmd/penstock/internal/testconvert"
)

// Clients that are split by chance, or by a hash, are split among the parts of a route.
func TestShares(t *testing.T) {
	backends := "backend blue\n server a 192.0.2.1:1\nbackend green\n server b 192.0.2.2:1\nbackend red\n server c 192.0.2.3:1\n"
	upstreams := "upstream blue { server 192.0.2.1:1; } upstream green { server 192.0.2.2:1; } upstream red { server 192.0.2.3:1; } "
	for _, c := range []struct {
		from       *convert.Reader
		text, want string
		notes      string
	}{
		{haproxy.Reader, "frontend f\n bind :1\n use_backend green if { rand(100) lt 5 }\n default_backend blue\n" + backends, "to: [{group: green, weight: 1}, {group: blue, weight: 19}]\n", ""},
		{haproxy.Reader, "frontend f\n bind :1\n acl few rand(10) ge 8\n use_backend green if few\n use_backend red if { rand(4) le 0 }\n default_backend blue\n" + backends, "to: [{group: green, weight: 1}, {group: red, weight: 1}, {group: blue, weight: 3}]\n", ""},
		{haproxy.Reader, "frontend f\n bind :1\n use_backend green if { rand(100) gt 49 }\n" + backends, "to: [{group: green, weight: 1}, {refuse: true, weight: 1}]\n", ""},
		{haproxy.Reader, "frontend f\n bind :1\n use_backend green if { rand(100) lt 100 }\n default_backend blue\n" + backends, "to: green\n", ""},
		{haproxy.Reader, "frontend f\n bind :1\n use_backend green if { rand(100) lt 0 }\n default_backend blue\n" + backends, "to: blue\n", ""},
		{haproxy.Reader, "frontend f\n bind :1\n use_backend green if { rand(100) lt 5 } { src 192.0.2.0/24 }\n default_backend blue\n" + backends, "to: blue\n", "as its only condition"},
		{haproxy.Reader, "frontend f\n bind :1\n use_backend green if { rand(100) lt 5 }\n use_backend red if { src 192.0.2.0/24 }\n default_backend blue\n" + backends, "# Left out: a share of the clients for green.", ""},
		{haproxy.Reader, "frontend f\n bind :1\n" + strings.Repeat(" use_backend green if { rand(1000000) lt 999999 }\n use_backend red if { rand(1000000) ge 999999 }\n", 9) + " default_backend blue\n" + backends, "to: [{group: green, weight: 1000000}, {group: red, weight: 1}, {group: blue, weight: 1}]\n", ""},
		{haproxy.Reader, "frontend f\n bind :1\n" + strings.Repeat(" use_backend green if { rand(100) lt 1 }\n", 4) + strings.Repeat(" use_backend red if { rand(100) lt 1 }\n", 4) + " default_backend blue\n" + backends,
			"to: [{group: green, weight: 42703}, {group: red, weight: 41020}, {group: blue, weight: 1000000}]\n", ""}, // 1-0.99^4, (1-0.99^4)*0.99^4, 0.99^8
		{haproxy.Reader, "frontend f\n bind :1\n" + strings.Repeat(" use_backend green if { rand(1000000) lt 1 }\n", 10000) + " default_backend blue\n" + backends, "to: [{group: green, weight: 10050}, {group: blue, weight: 1000000}]\n", ""}, // e^0.01-1
		{haproxy.Reader, "frontend f\n bind :1\n tcp-request connection reject if { rand(100) lt 5 }\n default_backend blue\n" + backends, "to: blue\n", "rand"},
		{nginx.Reader, "stream { " + upstreams + `split_clients "${remote_addr}x" $to { 0.5% green; 10% red; * blue; } server { listen 1; proxy_pass $to; } }`,
			"split-by: source\n    to: [{group: green, weight: 1}, {group: red, weight: 20}, {group: blue, weight: 179}]\n", ""},
		{nginx.Reader, "stream { " + upstreams + `split_clients $msec $to { 3.5% green; 4.5% red; 5.5% green; 6.5% red; 7.5% green; 8.5% red; * blue; } server { listen 1; proxy_pass $to; } }`,
			"to: [{group: green, weight: 33}, {group: red, weight: 39}, {group: blue, weight: 128}]\n", ""},
		{nginx.Reader, "stream { " + upstreams + `split_clients $msec $to { 50% green; * blue; } map $ssl_preread_server_name $name { a.example $to; default red; } server { listen 1; ssl_preread on; proxy_pass $name; } }`,
			"sni: a.example, to: [{group: green, weight: 1}, {group: blue, weight: 1}]}", ""},
		{nginx.Reader, "stream { " + upstreams + `split_clients $remote_addr $to { 60% green; 50% red; x blue; } server { listen 1; proxy_pass $to; } }`,
			"to: [{group: green, weight: 3}, {refuse: true, weight: 2}]\n", "not a share"},
	} {
		r, err := testconvert.Text(c.from, "f", c.text)
		if err != nil {
			t.Fatal(err)
		}
		testconvert.Valid(t, c.from.Name, r)
		var notes []string
		for _, n := range r.Notes {
			if !strings.Contains(n.Text, "left out: no") { // not every case leads to every group
				notes = append(notes, n.Text)
			}
		}
		if all := strings.Join(notes, "\n"); !strings.Contains(string(r.YAML), c.want) || c.notes == "" && all != "" || !strings.Contains(all, c.notes) {
			t.Errorf("%s\nbecomes %s\nnotes: %s\nwant %s", c.text, r.YAML, all, c.want)
		}
	}
}
