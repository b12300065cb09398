package relay_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os/exec"
	"strings"
	"testing"

	"github.com/penstock/penstock/relay"
)

// The examples' proxies work for curl, whatever kind of address it asks for, and tell it why they do not.
func TestProxiesForCurl(t *testing.T) {
	curl, err := exec.LookPath("curl")
	if err != nil {
		t.Skip(err)
	}
	engine, err := relay.New(relay.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close()
	listen := func(hooks relay.Hooks) string {
		l, err := engine.Listen(anyPort, relay.ListenConfig{Hooks: hooks})
		if err != nil {
			t.Fatal(err)
		}
		return l.Addr().AddrPort.String()
	}
	socks, connect := listen(socks5), listen(httpConnect)
	page := strings.Repeat("a page ", 100_000)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, page) }))
	defer server.Close()
	at, _ := url.Parse(server.URL)
	for _, c := range []struct {
		args string
		ok   bool
		want string
	}{
		{"--socks5 " + socks + " " + server.URL, true, page},
		{"--socks5-hostname " + socks + " http://localhost:" + at.Port(), true, page},
		{"-p -x http://" + connect + " " + server.URL, true, page},
		{"-v --socks5 " + socks + " http://127.0.0.1:1", false, "(5)"},
		{"-v --socks5-hostname " + socks + " http://name.invalid:1", false, "(4)"},
		{"-v -p -x http://" + connect + " http://127.0.0.1:1", false, "502"},
		{"-v -p -x http://" + connect + " http://name:1", false, "400"},
		{"-v -x http://" + connect + " " + server.URL, true, "405 Method Not Allowed"},
	} {
		out, err := exec.Command(curl, append(strings.Fields("-s --max-time 60 --noproxy none"), strings.Fields(c.args)...)...).CombinedOutput()
		if (err == nil) != c.ok || !strings.Contains(string(out), c.want) {
			t.Errorf("curl %s: %v, want %.20q: %.300s", c.args, err, c.want, out)
		}
	}
}
