package discover

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/penstock/penstock/cmd/penstock/internal/remote"
)

// A kubeconfig is what is read of a kubectl configuration (client.authentication.k8s.io, v1 Config).
type kubeconfig struct {
	CurrentContext string `yaml:"current-context"`
	Contexts       []struct {
		Name    string      `yaml:"name"`
		Context kubeContext `yaml:"context"`
	} `yaml:"contexts"`
	Clusters []struct {
		Name    string      `yaml:"name"`
		Cluster kubeCluster `yaml:"cluster"`
	} `yaml:"clusters"`
	Users []struct {
		Name string   `yaml:"name"`
		User kubeUser `yaml:"user"`
	} `yaml:"users"`
}

type kubeContext struct {
	Cluster string `yaml:"cluster"`
	User    string `yaml:"user"`
}

type kubeCluster struct {
	Server     string `yaml:"server"`
	CA         string `yaml:"certificate-authority"`
	CAData     string `yaml:"certificate-authority-data"`
	ServerName string `yaml:"tls-server-name"`
	Insecure   bool   `yaml:"insecure-skip-tls-verify"`
	Proxy      string `yaml:"proxy-url"`
}

type kubeUser struct {
	Token     string `yaml:"token"`
	TokenFile string `yaml:"tokenFile"`
	Cert      string `yaml:"client-certificate"`
	CertData  string `yaml:"client-certificate-data"`
	Key       string `yaml:"client-key"`
	KeyData   string `yaml:"client-key-data"`
	Username  string `yaml:"username"`
	As        string `yaml:"as"`
	Exec      any    `yaml:"exec"`
	Provider  any    `yaml:"auth-provider"`
}

// parseKubeconfig reads the access that a kubeconfig's context gives; name is empty for the current one. Relative
// paths are below folder.
func parseKubeconfig(b []byte, folder, name string) (kubeAccess, error) {
	var k kubeconfig
	if err := yaml.Unmarshal(b, &k); err != nil {
		return kubeAccess{}, fmt.Errorf("not a kubeconfig: %s", remote.Line([]byte(err.Error())))
	}
	if name == "" {
		name = k.CurrentContext
	}
	if name == "" {
		return kubeAccess{}, errors.New("it has no current-context: context must name one")
	}
	var context kubeContext
	var cluster kubeCluster
	var user kubeUser
	i := slices.IndexFunc(k.Contexts, func(c struct {
		Name    string      `yaml:"name"`
		Context kubeContext `yaml:"context"`
	}) bool {
		return c.Name == name
	})
	if i < 0 {
		return kubeAccess{}, fmt.Errorf("no context %q", name)
	}
	context = k.Contexts[i].Context
	found := false
	for _, c := range k.Clusters {
		if c.Name == context.Cluster {
			cluster, found = c.Cluster, true
			break
		}
	}
	if !found {
		return kubeAccess{}, fmt.Errorf("context %q: no cluster %q", name, context.Cluster)
	}
	found = context.User == ""
	for _, u := range k.Users {
		if u.Name == context.User {
			user, found = u.User, true
			break
		}
	}
	if !found {
		return kubeAccess{}, fmt.Errorf("context %q: no user %q", name, context.User)
	}
	a := kubeAccess{}
	if err := cluster.access(folder, &a); err != nil {
		return kubeAccess{}, fmt.Errorf("cluster %q: %w", context.Cluster, err)
	}
	if err := user.access(folder, &a); err != nil {
		return kubeAccess{}, fmt.Errorf("user %q: %w", context.User, err)
	}
	return a, nil
}

func (c kubeCluster) access(folder string, a *kubeAccess) error {
	u, err := url.Parse(c.Server)
	switch {
	case err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return fmt.Errorf("server %q is not the URL of an API server", remote.Line([]byte(c.Server)))
	case c.Insecure:
		return errors.New("insecure-skip-tls-verify is refused: whoever is on the way could send members; use certificate-authority")
	case c.Proxy != "":
		return errors.New("proxy-url is not supported")
	}
	a.Servers = []string{u.Scheme + "://" + u.Host}
	a.path = strings.TrimRight(u.Path, "/")
	a.ServerName = c.ServerName
	if a.CAData, err = decoded("certificate-authority-data", c.CAData); err != nil {
		return err
	}
	if a.CAData == nil {
		a.CA = below(folder, c.CA)
	}
	return nil
}

func (u kubeUser) access(folder string, a *kubeAccess) (err error) {
	switch {
	case u.Exec != nil:
		return errors.New("exec is refused: Penstock runs no programs to get credentials; use a token in tokenFile, which such a program can renew, or a client certificate")
	case u.Provider != nil:
		return errors.New("auth-provider is refused: Kubernetes has removed it; use tokenFile or a client certificate")
	case u.Username != "":
		return errors.New("username is refused: Kubernetes has removed it; use tokenFile or a client certificate")
	case u.As != "":
		return errors.New("as (impersonation) is not supported")
	}
	if u.TokenFile != "" { // which takes precedence, see kubectl
		a.TokenFile = below(folder, u.TokenFile)
	} else if a.token = u.Token; strings.ContainsFunc(a.token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return errors.New("token: there is a space or another character that no token has")
	}
	if a.CertData, err = decoded("client-certificate-data", u.CertData); err != nil {
		return err
	}
	if a.KeyData, err = decoded("client-key-data", u.KeyData); err != nil {
		return err
	}
	cert, key := a.CertData != nil || u.Cert != "", a.KeyData != nil || u.Key != ""
	switch {
	case cert != key:
		return errors.New("a client certificate needs its key, and a key its certificate")
	case a.CertData != nil != (a.KeyData != nil):
		return errors.New("client-certificate and client-key must both be files, or both data")
	case a.CertData == nil:
		a.Cert, a.Key = below(folder, u.Cert), below(folder, u.Key)
	}
	return nil
}

// below returns a path that may be relative to a folder; empty stays empty.
func below(folder, path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(folder, path)
}

// decoded returns the content of a key with base64; nil if it is empty.
func decoded(key, s string) ([]byte, error) {
	if s == "" {
		return nil, nil
	}
	b, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(s), ""))
	if err != nil || len(b) == 0 {
		return nil, fmt.Errorf("%s is not base64", key)
	}
	return b, nil
}
