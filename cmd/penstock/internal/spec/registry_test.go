package spec_test

import (
	"strings"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

func TestParseRemote(t *testing.T) {
	r, key, err := spec.ParseRemote("etcds://10.0.0.1:2379,[::1]:2379/penstock/edge/?ca=/etc/ca.pem&cert=/c&key=/k&name=etcd&user-file=/u")
	want := spec.Registry{Kind: "etcd", Servers: "https://10.0.0.1:2379 https://[::1]:2379", CA: "/etc/ca.pem", Cert: "/c", Key: "/k", ServerName: "etcd", UserFile: "/u"}
	if r != want || key != "/penstock/edge" || err != nil {
		t.Errorf("%+v, %q, %v; want %+v", r, key, err, want)
	}
	if r, key, err = spec.ParseRemote("xds://mesh:18000"); r != (spec.Registry{Kind: "xds", Servers: "http://mesh:18000"}) || key != "" || err != nil {
		t.Errorf("%+v, %q, %v", r, key, err)
	}
	if r, key, err = spec.ParseRemote("xds://mesh:18000/edge/"); r != (spec.Registry{Kind: "xds", Servers: "http://mesh:18000"}) || key != "edge" || err != nil {
		t.Errorf("%+v, %q, %v", r, key, err)
	}
	if r, key, err = spec.ParseRemote("xds://mesh:18000?partial=true"); r != (spec.Registry{Kind: "xds", Servers: "http://mesh:18000", Partial: true}) || key != "" || err != nil {
		t.Errorf("%+v, %q, %v", r, key, err)
	}
	for _, bad := range []string{"", "etcd:", "etcd://", "etcd://h/k", "etcd://h:1", "etcd://h:1/", "etcd://h:0/k", "etcd://h:1-2/k", "etcd://:1/k", "etcd://h:1/a//b", "etcd://h:1/k?ca=/x",
		"etcds://h:1/k?ca=x", "etcds://h:1/k?cert=/x", "etcds://h:1/k?ca=/x&ca=/y", "etcds://h:1/k?other=/x", "etcd://h:1/k?token-file=/t", "xds://h:1/a//b", "xds://h:1?user-file=/u", "xds://h:1/k?partial=true", "xds://h:1?partial=no", "etcd://h:1/k?partial=true", "file:///x", "etcd://h:1/k%zz?%zz", "etcd://h:1/a b",
		"etcd://h:1/" + strings.Repeat("k", 600)} {
		if r, key, err := spec.ParseRemote(bad); err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %+v, %q, %v", bad, r, key, err)
		}
	}
}

// A password in a URL is not repeated in the message.
func TestParseRemoteHidesPasswords(t *testing.T) {
	for _, s := range []string{"etcd://user:geheim@h:1/k", "etcds://user:ge/heim@h:1/k", "xds://geheim@h:1", "etcd://user:geheim@[::1]:2379,h:1/k?user-file=/u"} {
		_, _, err := spec.ParseRemote(s)
		if err == nil || strings.Contains(err.Error(), "heim") || !strings.Contains(err.Error(), "user-file") {
			t.Errorf("%q: %v", s, err)
		}
	}
}

// FuzzParseRemote: what is parsed has servers that can be dialled, and errors stand in one line.
func FuzzParseRemote(f *testing.F) {
	for _, s := range []string{"etcd://h:1/k", "xdss://a:1,b:2?name=x&token-file=/t", "etcds://[::1]:1/k?ca=/x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, key, err := spec.ParseRemote(s)
		switch {
		case err != nil:
			if strings.Contains(err.Error(), "\n") || r != (spec.Registry{}) || key != "" {
				t.Errorf("%q: %+v, %q, %v", s, r, key, err)
			}
		case len(r.ServerList()) == 0 || (r.Kind == "etcd") != (strings.HasPrefix(key, "/") && len(key) > 1) || !spec.IsRemote(s):
			t.Errorf("%q: %+v, %q", s, r, key)
		}
	})
}

func TestValidNode(t *testing.T) {
	for s, want := range map[string]bool{"": false, "a": true, "edge-1.example": true, "-a": false, ".": false, "a/b": false, "a b": false, strings.Repeat("a", 254): false} {
		if spec.ValidNode(s) != want {
			t.Errorf("ValidNode(%q) is %v", s, !want)
		}
	}
}
