package discover

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"strings"

	"github.com/penstock/penstock/cmd/penstock/internal/remote"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// serviceAccount is where Kubernetes puts the credentials of a pod.
const serviceAccount = "/var/run/secrets/kubernetes.io/serviceaccount"

// A kubeAccess is where an API server is, and as whom it is asked.
type kubeAccess struct {
	remote.Config
	path  string // before /apis, as with servers behind a proxy for several clusters; usually empty
	token string // bearer token; with Config.TokenFile it is unused
}

// accessOf returns the access of a registry. Files of credentials are read by the client, and again when they
// change; a kubeconfig and the environment are read here.
func accessOf(r spec.Registry, getenv func(string) string, account string) (kubeAccess, error) {
	switch {
	case r.Servers == "in-cluster":
		host, port := getenv("KUBERNETES_SERVICE_HOST"), getenv("KUBERNETES_SERVICE_PORT")
		if host == "" || port == "" {
			return kubeAccess{}, errors.New("in-cluster: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set: this is no pod of a Kubernetes cluster")
		}
		return kubeAccess{Config: remote.Config{
			Servers:   []string{"https://" + net.JoinHostPort(host, port)},
			CA:        filepath.Join(account, "ca.crt"),
			TokenFile: filepath.Join(account, "token"),
		}}, nil
	case strings.HasPrefix(r.Servers, "/"):
		b, err := readBounded(r.Servers, maxKubeconfig)
		if err != nil {
			return kubeAccess{}, err
		}
		a, err := parseKubeconfig(b, filepath.Dir(r.Servers), r.Context)
		if err != nil {
			return a, fmt.Errorf("%s: %w", r.Servers, err)
		}
		// What the registry says comes first.
		if r.TokenFile != "" {
			a.TokenFile = r.TokenFile
		}
		if r.CA != "" {
			a.CA, a.CAData = r.CA, nil
		}
		if r.Cert != "" {
			a.Cert, a.Key, a.CertData, a.KeyData = r.Cert, r.Key, nil, nil
		}
		if r.ServerName != "" {
			a.ServerName = r.ServerName
		}
		return a, nil
	}
	return kubeAccess{Config: remote.Config{
		Servers: r.ServerList(), CA: r.CA, Cert: r.Cert, Key: r.Key, ServerName: r.ServerName, TokenFile: r.TokenFile,
	}}, nil
}

// Credentials returns the files that a client of a Kubernetes registry reads while it runs, and the servers that it connects to. An error
// says that they are not known now.
func Credentials(r spec.Registry) (files, servers []string, err error) {
	a, err := accessOf(r, os.Getenv, serviceAccount)
	return []string{a.CA, a.Cert, a.Key, a.TokenFile}, a.Servers, err
}

// A kubeClient asks an API server. The sources of a registry share it, so that their watches have one connection.
type kubeClient struct {
	*remote.Client
	access kubeAccess
	users  int // guarded by Sources.mu
}

// client returns a client whose connections dial makes; nil: as always.
func (a kubeAccess) client(dial func(ctx context.Context, network, address string) (net.Conn, error)) (*kubeClient, error) {
	cfg := a.Config
	cfg.DialContext = dial
	c, err := remote.New(cfg)
	if err != nil {
		return nil, err
	}
	return &kubeClient{Client: c, access: a}, nil
}

// kubeClient returns a client of a registry, which release must be called for.
func (s *Sources) kubeClient(r spec.Registry, a kubeAccess) (*kubeClient, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.kube[r]
	if c == nil || !reflect.DeepEqual(c.access, a) { // a kubeconfig has changed: those who use the old client still finish
		var err error
		if c, err = a.client(s.opt.dial); err != nil {
			return nil, err
		}
		if s.kube == nil {
			s.kube = make(map[spec.Registry]*kubeClient)
		}
		s.kube[r] = c
	}
	c.users++
	return c, nil
}

func (s *Sources) release(r spec.Registry, c *kubeClient) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.users--; c.users > 0 {
		return
	}
	c.Close()
	if s.kube[r] == c {
		delete(s.kube, r)
	}
}

// bearer returns the token that the next request has.
func (c *kubeClient) bearer() string {
	if c.access.TokenFile == "" {
		return c.access.token
	}
	token, _ := c.Token()
	return token
}

// request makes a GET request for a path below the server's, and returns the token that it has.
func (c *kubeClient) request(path string, query url.Values) (r *http.Request, token string, err error) {
	u := *c.Servers()[0]
	u.Path, u.RawQuery = c.access.path+path, query.Encode()
	r, err = http.NewRequest(http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, "", err
	}
	r.Header.Set("Accept", "application/json")
	r.Header.Set("User-Agent", "penstock")
	if token = c.bearer(); token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return r, token, nil
}

const maxKubeconfig = 1 << 20

// readBounded reads a file of at most most bytes.
func readBounded(path string, most int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := remote.Read(f, most)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return b, nil
}
