package remote

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

// Config says where the servers of an engine are, and with which credentials they are used.
type Config struct {
	Servers    []string // URLs: http or https, a host, a port; the same scheme for all
	CA         string   // file of the authorities that servers' certificates must be of; empty: the system's
	Cert, Key  string   // files of the client's certificate; empty: none
	ServerName string   // what a server's certificate must be for; empty: the URL's host
	TokenFile  string   // file with a bearer token, sent with every request; empty: none
	UserFile   string   // file with "user:password"; see Client.User

	// CAData, CertData and KeyData are used instead of the files, if they are set (PEM).
	CAData, CertData, KeyData []byte

	// DialContext connects to a server; nil: a net.Dialer does.
	DialContext func(ctx context.Context, network, address string) (net.Conn, error)

	HTTP2       bool          // speak HTTP/2 also without TLS, and nothing else
	DialTimeout time.Duration // 0: 5 s
	PingAfter   time.Duration // of silence on a connection of HTTP/2; 0: 15 s
	PingTimeout time.Duration // until a connection without an answer is closed; 0: 10 s
}

// A Client makes requests to the servers of an engine. Its methods may be called from several goroutines.
type Client struct {
	cfg     Config
	servers []*url.URL
	http    *http.Client

	ca, cert, key, token, user *watchedFile // nil: not configured

	mu      sync.Mutex
	roots   *x509.CertPool
	keyPair *tls.Certificate
}

// New returns a Client. It connects to nobody, but reads the files once, so that what is wrong with them is
// said when the configuration is checked.
func New(cfg Config) (*Client, error) {
	c := &Client{cfg: cfg}
	if cfg.DialContext == nil {
		c.cfg.DialContext = c.dialer().DialContext
	}
	if len(cfg.Servers) == 0 {
		return nil, errors.New("no server is given")
	}
	for _, s := range cfg.Servers {
		u, err := parseServer(s)
		if err != nil {
			return nil, err
		}
		if len(c.servers) > 0 && c.servers[0].Scheme != u.Scheme {
			return nil, fmt.Errorf("%q: servers of both http and https", s)
		}
		c.servers = append(c.servers, u)
	}
	for file, path := range map[**watchedFile]string{&c.ca: cfg.CA, &c.cert: cfg.Cert, &c.key: cfg.Key, &c.token: cfg.TokenFile, &c.user: cfg.UserFile} {
		if path == "" {
			continue
		}
		*file = &watchedFile{path: path}
		if _, _, err := (*file).get(); err != nil {
			return nil, err
		}
	}
	secure := c.servers[0].Scheme == "https"
	if secure {
		if _, err := c.tlsConfig(c.servers[0].Hostname()); err != nil {
			return nil, err
		}
	}
	if c.user != nil {
		if _, _, err := c.User(); err != nil {
			return nil, err
		}
	}
	t := &http.Transport{
		DialContext:           c.cfg.DialContext,
		MaxIdleConnsPerHost:   4,
		IdleConnTimeout:       90 * time.Second,
		ExpectContinueTimeout: time.Second,
		DisableCompression:    true, // a small answer could become a large one
		ForceAttemptHTTP2:     secure,
		HTTP2:                 &http.HTTP2Config{SendPingTimeout: orDefault(cfg.PingAfter, 15*time.Second), PingTimeout: orDefault(cfg.PingTimeout, 10*time.Second)},
		Protocols:             new(http.Protocols),
	}
	if cfg.HTTP2 {
		t.Protocols.SetHTTP2(secure)
		t.Protocols.SetUnencryptedHTTP2(!secure)
	} else {
		t.Protocols.SetHTTP1(true)
		t.Protocols.SetHTTP2(secure)
	}
	if secure {
		t.DialTLSContext = c.dialTLS
	}
	c.http = &http.Client{
		Transport:     t,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // credentials go nowhere else
	}
	return c, nil
}

func parseServer(s string) (*url.URL, error) {
	u, err := url.Parse(s)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return nil, fmt.Errorf("%q is not the URL of a server, such as https://10.0.0.1:2379", s)
	case u.User != nil || u.RawQuery != "" || u.Fragment != "" || strings.Trim(u.Path, "/") != "":
		return nil, fmt.Errorf("%q: only a scheme, a host and a port are allowed", s)
	}
	u.Path = ""
	return u, nil
}

// Servers returns the URLs of the servers, without a path. They must not be changed.
func (c *Client) Servers() []*url.URL { return c.servers }

// Do sends a request, with the bearer token if there is one and the request has no credentials. It does not
// follow redirects. See http.Client.Do.
func (c *Client) Do(r *http.Request) (*http.Response, error) {
	if c.token != nil && r.Header.Get("Authorization") == "" {
		token, err := c.Token()
		if err != nil {
			return nil, err
		}
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return c.http.Do(r)
}

// Token returns the bearer token as the file has it now; empty if none is configured.
func (c *Client) Token() (string, error) {
	if c.token == nil {
		return "", nil
	}
	b, _, err := c.token.get()
	if err != nil {
		return "", err
	}
	token := firstLine(b)
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) || token == "" {
		return "", fmt.Errorf("%s: the first line is not a token", c.token.path)
	}
	return token, nil
}

// User returns the user and password as the file has them now; empty if none is configured.
func (c *Client) User() (user, password string, err error) {
	if c.user == nil {
		return "", "", nil
	}
	b, _, err := c.user.get()
	if err != nil {
		return "", "", err
	}
	user, password, ok := strings.Cut(firstLine(b), ":")
	if !ok || user == "" {
		return "", "", fmt.Errorf("%s: the first line is not USER:PASSWORD", c.user.path)
	}
	return user, password, nil
}

// Close closes the connections that are idle.
func (c *Client) Close() { c.http.CloseIdleConnections() }

func (c *Client) dialer() *net.Dialer {
	return &net.Dialer{
		Timeout: orDefault(c.cfg.DialTimeout, 5*time.Second),
		// A peer that is gone without a word is noticed after 25 s of silence, also in a stream that waits for events.
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 3},
	}
}

// dialTLS makes each connection with the files as they are now.
func (c *Client) dialTLS(ctx context.Context, network, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	cfg, err := c.tlsConfig(host)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*orDefault(c.cfg.DialTimeout, 5*time.Second))
	defer cancel()
	raw, err := c.cfg.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	conn := tls.Client(raw, cfg)
	if err := conn.HandshakeContext(ctx); err != nil {
		raw.Close()
		return nil, fmt.Errorf("TLS with %s: %w", address, err)
	}
	return conn, nil
}

// tlsConfig returns the settings of a connection to host. The files are parsed when they have changed; a new
// content that is wrong is not used as long as there is an older one.
func (c *Client) tlsConfig(host string) (*tls.Config, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.loadRoots(); err != nil && c.roots == nil {
		return nil, err
	}
	if err := c.loadKeyPair(); err != nil && c.keyPair == nil {
		return nil, err
	}
	cfg := &tls.Config{RootCAs: c.roots, ServerName: c.cfg.ServerName, NextProtos: []string{"h2", "http/1.1"}, MinVersion: tls.VersionTLS12}
	if cfg.ServerName == "" {
		cfg.ServerName = host
	}
	if c.cfg.HTTP2 {
		cfg.NextProtos = cfg.NextProtos[:1]
	}
	if c.keyPair != nil {
		cfg.Certificates = []tls.Certificate{*c.keyPair}
	}
	return cfg, nil
}

func (c *Client) loadRoots() error {
	pem, name := c.cfg.CAData, "the authorities' certificates"
	if c.ca != nil {
		b, fresh, err := c.ca.get()
		if err != nil || !fresh && c.roots != nil {
			return err
		}
		pem, name = b, c.ca.path
	} else if pem == nil || c.roots != nil {
		return nil
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return fmt.Errorf("%s: no certificate in PEM format", name)
	}
	c.roots = pool
	return nil
}

func (c *Client) loadKeyPair() error {
	cert, key := c.cfg.CertData, c.cfg.KeyData
	if c.cert == nil != (c.key == nil) || len(cert) == 0 != (len(key) == 0) {
		return errors.New("a client certificate needs its key, and a key its certificate")
	}
	if c.cert != nil {
		b, freshCert, err := c.cert.get()
		if err != nil {
			return err
		}
		k, freshKey, err := c.key.get()
		if err != nil || !freshCert && !freshKey && c.keyPair != nil {
			return err
		}
		cert, key = b, k
	} else if cert == nil || c.keyPair != nil {
		return nil
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return fmt.Errorf("the client's certificate: %w", err)
	}
	c.keyPair = &pair
	return nil
}
