package discover

import (
	"encoding/base64"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/cmd/penstock/internal/testfleet"
	"github.com/penstock/penstock/internal/testnet"
)

// kubeconfigOf returns a kubeconfig with two contexts, the current one with what is given, each indented by four spaces.
func kubeconfigOf(cluster, user string) string {
	return `apiVersion: v1
kind: Config
current-context: here
preferences: {}
contexts:
- name: other
  context: {cluster: other, user: other}
- name: here
  context: {cluster: c, user: u, namespace: shop}
clusters:
- name: other
  cluster: {server: "https://10.9.9.9:6443"}
- name: c
  cluster:
` + cluster + `
users:
- name: other
  user: {token: other}
- name: u
  user:
` + user + "\n"
}

func TestParseKubeconfig(t *testing.T) {
	data := base64.StdEncoding.EncodeToString([]byte("PEM"))
	const server = "    server: https://10.0.0.1:6443\n"
	for _, c := range []struct{ name, cluster, user, context, want string }{
		{"token", server, "    token: abc", "", "[https://10.0.0.1:6443] token=abc"},
		{"another context", server, "    token: abc", "other", "[https://10.9.9.9:6443] token=other"},
		{"token file, which comes first", server, "    token: abc\n    tokenFile: secrets/token", "", "[https://10.0.0.1:6443] tokenFile=/etc/kube/secrets/token"},
		{"files", server + "    certificate-authority: ca.pem", "    client-certificate: /c.pem\n    client-key: k.pem", "", "[https://10.0.0.1:6443] ca=/etc/kube/ca.pem cert=/c.pem key=/etc/kube/k.pem"},
		{"data, which comes first", server + "    certificate-authority: ca.pem\n    certificate-authority-data: " + data, "    client-certificate-data: " + data + "\n    client-key-data: " + data, "", "[https://10.0.0.1:6443] caData=PEM certData=PEM keyData=PEM"},
		{"name and path", "    server: https://host/k8s/clusters/c-1/\n    tls-server-name: api.test", "    token: a", "", "[https://host]/k8s/clusters/c-1 name=api.test token=a"},
		{"no user's keys", server, "    {}", "", "[https://10.0.0.1:6443]"},

		{"no context", server, "    {}", "nowhere", `error: no context "nowhere"`},
		{"no server", "    {}", "    {}", "", `error: cluster "c": server "" is not the URL of an API server`},
		{"insecure", server + "    insecure-skip-tls-verify: true", "    {}", "", `error: cluster "c": insecure-skip-tls-verify is refused`},
		{"proxy", server + "    proxy-url: socks5://10.0.0.9", "    {}", "", `error: cluster "c": proxy-url is not supported`},
		{"not base64", server + "    certificate-authority-data: '*'", "    {}", "", `error: cluster "c": certificate-authority-data is not base64`},
		{"exec", server, "    exec: {command: aws}", "", `error: user "u": exec is refused`},
		{"auth-provider", server, "    auth-provider: {name: gcp}", "", `error: user "u": auth-provider is refused`},
		{"password", server, "    username: a\n    password: b", "", `error: user "u": username is refused`},
		{"impersonation", server, "    token: a\n    as: root", "", `error: user "u": as (impersonation) is not supported`},
		{"certificate alone", server, "    client-certificate: c.pem", "", `error: user "u": a client certificate needs its key`},
		{"file and data", server, "    client-certificate: c.pem\n    client-key-data: " + data, "", `error: user "u": client-certificate and client-key must both be files`},
		{"a token of two lines", server, "    token: \"a\\nX-Evil: b\"", "", `error: user "u": token: there is a space`},
		{"not YAML", "  \t- {", "", "", "error: not a kubeconfig"},
	} {
		a, err := parseKubeconfig([]byte(kubeconfigOf(c.cluster, c.user)), "/etc/kube", c.context)
		got := showAccess(a)
		if err != nil {
			got = "error: " + err.Error()
		}
		if got != c.want && !(err != nil && strings.HasPrefix(c.want, "error: ") && strings.HasPrefix(got, c.want)) {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
	if _, err := parseKubeconfig([]byte("a: 1"), "/", ""); err == nil || !strings.Contains(err.Error(), "current-context") {
		t.Errorf("an empty one: %v", err)
	}
}

func showAccess(a kubeAccess) string {
	s := fmt.Sprint(a.Servers) + a.path
	for _, p := range [][2]string{
		{"ca", a.CA}, {"caData", string(a.CAData)}, {"cert", a.Cert}, {"certData", string(a.CertData)}, {"key", a.Key}, {"keyData", string(a.KeyData)},
		{"name", a.ServerName}, {"token", a.token}, {"tokenFile", a.TokenFile},
	} {
		if p[1] != "" {
			s += " " + p[0] + "=" + p[1]
		}
	}
	return s
}

// TestKubeconfigChanges: a kubeconfig is read again after a failure, with another token and another server.
func TestKubeconfigChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := testnet.NewNetwork()
		one, two := testfleet.NewMemoryKubernetes(t, network, "one"), testfleet.NewMemoryKubernetes(t, network, "two")
		one.Put("shop", "web-1", "web", slice(80, up("10.0.0.1")))
		two.Put("shop", "web-1", "web", slice(80, up("10.0.0.2")))
		path := filepath.Join(t.TempDir(), "kubeconfig")
		config := func(k *testfleet.Kubernetes, token string) {
			cluster := "    server: " + k.URL + "\n    tls-server-name: server.test\n    certificate-authority-data: " + base64.StdEncoding.EncodeToString(k.CA())
			write(t, path, kubeconfigOf(cluster, "    token: "+token))
		}
		config(one, "expired")
		w := watchFor(t, network, spec.Discover{Registry: spec.Registry{Kind: "kubernetes", Servers: path}, Key: "shop/web", Network: spec.TCP})
		w.fails("401")
		config(one, "one")
		w.wants("10.0.0.1:80")
		config(two, "two")
		one.Stop()
		w.wants("10.0.0.2:80")
	})
}
