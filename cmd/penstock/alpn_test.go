package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/testcerts"
	"github.com/penstock/penstock/internal/testnet"
)

// A webWorld is a real server of HTTP/2 and HTTP/1.1 over TLS, which answers with the protocol of the request, and its
// certificates, which serve for listeners too.
type webWorld struct {
	authority     *testcerts.Cert
	dir           string
	cert, key, ca string // files
	member        string // URL
}

func newWebWorld(t *testing.T) *webWorld {
	t.Helper()
	w := &webWorld{authority: testcerts.Authority(t, "authority"), dir: shortDir(t)}
	web := w.authority.Issue(t, "www.test")
	w.cert, w.key = web.Write(t, w.dir, "www")
	w.ca, _ = w.authority.Write(t, w.dir, "ca")
	w.member = w.serve(t, web)
	return w
}

// serve starts a server with the protocols, or with both of HTTP.
func (w *webWorld) serve(t *testing.T, cert *testcerts.Cert, protocols ...string) (member string) {
	t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.Proto) }))
	if s.EnableHTTP2 = protocols == nil; s.EnableHTTP2 {
		protocols = []string{"h2", "http/1.1"}
	}
	s.TLS = &tls.Config{Certificates: []tls.Certificate{cert.TLS()}, NextProtos: protocols}
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	return url(s.Listener.Addr())
}

// A webClient gets a page from an address, and returns its text or the error.
type webClient struct {
	name string
	get  func(at string) string
}

// clients returns those that offer HTTP/2 and HTTP/1.1, HTTP/1.1 alone, and none: of Go, and curl where it is installed.
func (w *webWorld) clients(t *testing.T) [3][]webClient {
	goClient := func(name string, offers ...string) webClient {
		return webClient{name, func(at string) string {
			transport := &http.Transport{
				DialTLSContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
					d := &tls.Dialer{Config: &tls.Config{ServerName: "www.test", RootCAs: w.authority.Pool(), NextProtos: offers}}
					return d.DialContext(ctx, "tcp", at)
				},
				ForceAttemptHTTP2: len(offers) > 1,
			}
			defer transport.CloseIdleConnections()
			resp, err := (&http.Client{Transport: transport, Timeout: patience}).Get("https://www.test/")
			if err != nil {
				return err.Error()
			}
			defer resp.Body.Close()
			text, err := io.ReadAll(resp.Body)
			if err != nil {
				return err.Error()
			}
			return string(text)
		}}
	}
	all := [3][]webClient{{goClient("Go", "h2", "http/1.1")}, {goClient("Go, HTTP/1.1", "http/1.1")}, {goClient("Go, no ALPN")}}
	if _, err := exec.LookPath("curl"); err != nil {
		return all
	}
	for i, version := range []string{"--http2", "--http1.1", "--no-alpn"} {
		all[i] = append(all[i], webClient{"curl " + version, func(at string) string {
			_, port, _ := net.SplitHostPort(at)
			out, err := exec.Command("curl", "-sS", version, "--max-time", fmt.Sprint(int(patience.Seconds())), "--cacert", w.ca, "--resolve", "www.test:"+port+":127.0.0.1", "https://www.test:"+port+"/").CombinedOutput()
			if err != nil {
				return err.Error() + ": " + string(out)
			}
			return string(out)
		}})
	}
	return all
}

// Where TLS ends at the listener, a route by protocol means the one that was agreed on: the client and the member speak the same,
// whichever the listener and the order of routes prefer, as behind HAProxy with ssl_fc_alpn.
func TestRouteByAgreedProtocol(t *testing.T) {
	t.Parallel()
	w := newWebWorld(t)
	all := w.clients(t)
	listeners := map[string]struct{ alpn, routes, both string }{
		"old":        {"[http/1.1]", "routes: [{alpn: h2, to: h2}], to: h1", "HTTP/1.1"},
		"old-first":  {"[http/1.1, h2]", "routes: [{alpn: h2, to: h2}], to: h1", "HTTP/1.1"},
		"new-first":  {"[h2, http/1.1]", "routes: [{alpn: h2, to: h2}], to: h1", "HTTP/2.0"},
		"both-named": {"[h2, http/1.1]", "routes: [{alpn: http/1.1, to: h1}, {alpn: h2, to: h2}], to: h1", "HTTP/2.0"},
	}
	var text strings.Builder
	for name, l := range listeners {
		fmt.Fprintf(&text, "  %s: {listen: \"tcp://127.0.0.1:0\", tls: {certificates: [{certificate: \"{0}\", key: \"{1}\"}], alpn: %s}, %s}\n", name, l.alpn, l.routes)
	}
	d := runFile(t, "listeners:\n"+text.String()+`
groups:
  h2: {members: "{3}", tls: {ca: "{2}", server-name: www.test, alpn: [h2]}}
  h1: {members: "{3}", tls: {ca: "{2}", server-name: www.test, alpn: [http/1.1]}}
`, w.cert, w.key, w.ca, w.member)
	n := 0
	for name, l := range listeners {
		at := d.at(name).String()
		for i, clients := range all {
			want := []string{l.both, "HTTP/1.1", "HTTP/1.1"}[i]
			for _, c := range clients {
				if got := c.get(at); got != want {
					t.Errorf("listener %s, %s: %s, want %s", name, c.name, got, want)
				}
				n++
				if r := d.records(n)[n-1]; r["tls_protocol"] != nil && r["tls_protocol"] != r["upstream_tls_protocol"] {
					t.Errorf("listener %s, %s: %v with the client, %v with the member", name, c.name, r["tls_protocol"], r["upstream_tls_protocol"])
				}
			}
		}
	}
	t.Run("haproxy", func(t *testing.T) {
		need(t, "haproxy")
		pem, err := os.ReadFile(w.cert)
		if err == nil {
			var key []byte
			if key, err = os.ReadFile(w.key); err == nil {
				err = os.WriteFile(filepath.Join(w.dir, "all.pem"), append(pem, key...), 0o600)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		for alpn, want := range map[string]string{"h2,http/1.1": "HTTP/2.0", "http/1.1,h2": "HTTP/1.1"} {
			at := "127.0.0.1:" + testnet.Port(t)
			file := filepath.Join(w.dir, "haproxy.cfg")
			if err := os.WriteFile(file, fmt.Appendf(nil, `
defaults
  mode tcp
  timeout connect 30s
  timeout client 30s
  timeout server 30s
frontend f
  bind %[1]s ssl crt %[2]s/all.pem alpn %[3]s
  use_backend h2 if { ssl_fc_alpn h2 }
  default_backend h1
backend h2
  server s %[4]s ssl verify none alpn h2
backend h1
  server s %[4]s ssl verify none alpn http/1.1
`, at, w.dir, alpn, strings.TrimPrefix(w.member, "tcp://")), 0o600); err != nil {
				t.Fatal(err)
			}
			serve(t, "haproxy", "-db", "-f", file)
			up(t, "HAProxy", at)
			for i, clients := range all {
				for _, c := range clients {
					if got, want := c.get(at), []string{want, "HTTP/1.1", "HTTP/1.1"}[i]; got != want {
						t.Errorf("alpn %s, %s: %s, want %s", alpn, c.name, got, want)
					}
				}
			}
		}
	})
}

// Where TLS begins again towards members, they are offered what the client has agreed on, unless the group says something else; and ends
// that have agreed on different protocols are not joined.
func TestOfferAgreedProtocol(t *testing.T) {
	t.Parallel()
	w := newWebWorld(t)
	all := w.clients(t)
	only := w.serve(t, w.authority.Issue(t, "www.test"), "http/1.1")
	tls := `tls: {ca: "{2}", server-name: www.test`
	groups := map[string]struct {
		text  string
		wants [3]string // what clients get that offer both, HTTP/1.1, and nothing; empty: it does not work
	}{
		"default": {`members: "{3}", ` + tls + `}`, [3]string{"HTTP/2.0", "HTTP/1.1", "HTTP/1.1"}},
		"client":  {`members: "{3}", ` + tls + `, alpn: client}`, [3]string{"HTTP/2.0", "HTTP/1.1", "HTTP/1.1"}},
		"none":    {`members: "{3}", ` + tls + `, alpn: none}`, [3]string{"", "HTTP/1.1", "HTTP/1.1"}},
		"list":    {`members: "{3}", ` + tls + `, alpn: [h2, http/1.1]}`, [3]string{"HTTP/2.0", "HTTP/1.1", ""}},
		"new":     {`members: "{3}", ` + tls + `, alpn: [h2]}`, [3]string{"HTTP/2.0", "", ""}},
		"old":     {`members: "{4}", ` + tls + `, alpn: [http/1.1]}`, [3]string{"", "HTTP/1.1", "HTTP/1.1"}},
	}
	var listeners, text strings.Builder
	for name, g := range groups {
		fmt.Fprintf(&listeners, "  %s: {listen: \"tcp://127.0.0.1:0\", tls: {certificates: [{certificate: \"{0}\", key: \"{1}\"}], alpn: [h2, http/1.1]}, to: %[1]s}\n", name)
		fmt.Fprintf(&text, "  %s: {%s}\n", name, g.text)
	}
	d := runFile(t, "listeners:\n"+listeners.String()+"groups:\n"+text.String(), w.cert, w.key, w.ca, w.member, only)
	n, mismatches := 0, 0
	for name, g := range groups {
		at := d.at(name).String()
		for i, clients := range all {
			for _, c := range clients {
				got, want := c.get(at), g.wants[i]
				n++
				r := d.records(n)[n-1]
				if served := strings.HasPrefix(got, "HTTP/"); served != (want != "") || served && got != want {
					t.Errorf("group %s, %s: %s, want %s", name, c.name, got, want)
				}
				ours, theirs := r["tls_protocol"], r["upstream_tls_protocol"]
				if differ := ours != nil && theirs != nil && ours != theirs; differ != (r["reason"] == "protocol-mismatch") {
					t.Errorf("group %s, %s: %v", name, c.name, r)
				} else if differ {
					mismatches++
					mustBe(t, r, "cause", "refused", "error", fmt.Sprintf("TLS: the client has agreed on %v with the listener, and the member on %v with the relay", ours, theirs))
				}
			}
		}
	}
	if want := len(all[0]) + len(all[1]); mismatches != want { // of the groups old and new
		t.Errorf("%d clients were refused because the member speaks something else, want %d", mismatches, want)
	}
	if n := d.metric("penstock_refusals_total", `reason="protocol-mismatch"`); int(n) != mismatches {
		t.Errorf("%v refusals are counted, want %d", n, mismatches)
	}
}
