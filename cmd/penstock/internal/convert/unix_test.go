package convert

import (
	"strings"
	"testing"
)

// Clients of a Unix socket have no address: a rule with a range matches none of them, and the
// first rule without one decides. A socket that refuses everybody is not opened to all.
func TestAccessOfUnixSockets(t *testing.T) {
	for _, c := range []struct {
		from     Product
		rules    string
		admitted bool
	}{
		{Nginx, "allow 10.0.0.0/8; deny all;", false},
		{Nginx, "deny all; allow unix:;", false},
		{Nginx, "deny unix:; allow all;", false},
		{Nginx, "allow unix:; deny all;", true},
		{Nginx, "allow 10.0.0.0/8; allow all; deny all;", true},
		{Nginx, "deny 10.1.0.0/16; allow 10.0.0.0/8;", true},
		{Nginx, "allow 10.1.0.0/16; deny 10.0.0.0/8; allow all;", true},
		{HAProxy, " tcp-request connection reject unless { src 10.0.0.0/8 }\n", false},
		{HAProxy, " tcp-request connection accept if { src 10.0.0.0/8 }\n tcp-request connection reject\n", false},
		{HAProxy, " tcp-request connection reject if { src 10.0.0.0/8 }\n", true},
	} {
		text := "stream { server { listen unix:/run/l.sock; " + c.rules + " proxy_pass 192.0.2.1:1; } server { listen 1; proxy_pass 192.0.2.1:1; } }"
		if c.from == HAProxy {
			text = "listen l\n bind /run/l.sock\n" + c.rules + " server a 192.0.2.1:1\nlisten m\n bind :1\n server a 192.0.2.1:1\n"
		}
		r, err := Convert(c.from, []File{{"f", []byte(text)}}, Source{})
		if err != nil {
			t.Errorf("%s: %v", c.rules, err)
			continue
		}
		valid(t, c.rules, r)
		if got := strings.Contains(string(r.YAML), "unix:///run/l.sock"); got != c.admitted {
			t.Errorf("%q: the socket is open: %v\n%s%v", c.rules, got, r.YAML, r.Notes)
		}
	}
}

// HAProxy pads abstract names with zero bytes, unless they are abnsz.
func TestAbstractNames(t *testing.T) {
	for family, notes := range map[string]int{"abns": 2, "abnsz": 0} {
		text := "listen l\n bind " + family + "@a\n server s " + family + "@b\n"
		r, err := Convert(HAProxy, []File{{"f", []byte(text)}}, Source{})
		if err != nil {
			t.Fatal(err)
		}
		valid(t, family, r)
		if !strings.Contains(string(r.YAML), "listen: unix:@a") || !strings.Contains(string(r.YAML), "to: unix:@b") || len(r.Notes) != notes {
			t.Errorf("%s: %v\n%s", family, r.Notes, r.YAML)
		}
	}
}
