package convert_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/convert"
	"github.com/penstock/penstock/cmd/penstock/internal/convert/haproxy"
	"github.com/penstock/penstock/cmd/penstock/internal/convert/nginx"
)

// readers are all of them.
var readers = map[convert.Product]*convert.Reader{convert.HAProxy: haproxy.Reader, convert.Nginx: nginx.Reader}

// Notes name the line that they are about, of a directive of nginx the first one: those with HERE, and no other.
func TestLines(t *testing.T) {
	for name, text := range map[string]string{
		"haproxy.cfg": `
global
	user nobody
	group others          # HERE
	chroot /empty         # HERE
	tune.odd 3            # HERE
userlist people           # HERE
	group a users b
defaults
	mode tcp
	timeout odd 3s        # HERE
listen web
	bind 127.0.0.1:1 odd  # HERE
	option odd            # HERE
	server a 10.0.0.1:1 odd # HERE
	server b 10.0.0.1:99999 # HERE
frontend many             # HERE
	bind 127.0.0.1:2
	acl known req.ssl_sni -i a.example
	use_backend nowhere if known # HERE
	use_backend web if { odd }   # HERE
	default_backend nobody       # HERE
	tcp-request inspect-delay 5s
.if defined(X)            # HERE
	odd
.endif
backend unused            # HERE
	server a 10.0.0.1:1
`,
		"uid.cfg": `
global
	uid 1000              # HERE
	maxconn 10
listen web
	bind 127.0.0.1:1
	server a 10.0.0.1:1
`,
		"nginx.conf": `
user nobody               # HERE
	others;
load_module "a
b";
events { odd on; }        # HERE
stream {
	odd on;               # HERE
	upstream web {
		server 10.0.0.1:1     # HERE
			weight=3

			odd=1;
		odd on;           # HERE
	}
	map $ssl_preread_server_name $to {
		default web;
		~^odd web;        # HERE
		a.example web odd; # HERE
	}
	include odd.inc;
	server {
		listen 127.0.0.1:1 odd; # HERE
		proxy_pass $to;
		ssl_preread on;
		if ($odd) {       # HERE
			odd;
		}
		odd {             # HERE
			odd on;
		}
		proxy_timeout 3odd; # HERE
	}
}
`,
	} {
		var want, got []int
		for i, line := range strings.Split(text, "\n") {
			if strings.Contains(line, "# HERE") {
				want = append(want, i+1)
			}
		}
		f := convert.File{Name: name, Text: []byte(text)}
		included := func(string) ([]convert.File, error) {
			return []convert.File{{Name: "odd.inc", Text: []byte("\n\nserver {\n\tlisten 127.0.0.1:2;\n\todd on;\n\tproxy_pass web;\n}\n")}}, nil
		}
		r, err := readers[convert.Guess(f)].Convert([]convert.File{f}, convert.Source{Read: included})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, n := range r.Notes {
			if n.File == name {
				got = append(got, n.Line)
			} else if n.File != "odd.inc" || n.Line != 5 {
				t.Errorf("%s: %v", name, n)
			}
		}
		if got = slices.Compact(got); !slices.Equal(got, want) {
			t.Errorf("%s: lines %v, want %v: %v", name, got, want, r.Notes)
		}
	}
}
