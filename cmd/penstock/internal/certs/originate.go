package certs

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/relay"
)

// Clients has all TLS towards members of a running configuration. Its methods are safe for concurrent use.
type Clients struct {
	opt Options
	// Tell, if not nil, is called when files cannot be used, when that is over, and with warnings. It must not call the Clients.
	Tell func(Problems)

	mu  sync.Mutex
	all map[spec.ClientTLS]*Client
}

// NewClients returns Clients that have none yet.
func NewClients(o Options, tell func(Problems)) *Clients {
	return &Clients{opt: o, Tell: tell, all: map[spec.ClientTLS]*Client{}}
}

// Set reads the files of those that are new, and of the others what has changed, and forgets those that are not in the list.
func (c *Clients) Set(list []*spec.ClientTLS) {
	c.mu.Lock()
	defer c.mu.Unlock()
	next := make(map[spec.ClientTLS]*Client, len(list))
	for _, t := range list {
		k := c.all[*t]
		if k == nil {
			k = newClient(t)
		}
		next[*t] = k
		c.look(k)
	}
	c.all = next
}

// Look reads files again that have changed. What cannot be read, or is wrong, is not used as long as there is something from
// before; files that belong together are replaced one after the other.
func (c *Clients) Look() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range c.all {
		c.look(k)
	}
}

func (c *Clients) look(k *Client) {
	if problems := k.look(&c.opt); len(problems) > 0 && c.Tell != nil {
		c.Tell(problems)
	}
}

// Of returns the Client of a configuration of TLS. It is never nil, and stays valid: one that was not given to Set reads its files now, and
// never again.
func (c *Clients) Of(t *spec.ClientTLS) *Client {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k := c.all[*t]; k != nil {
		return k
	}
	k := newClient(t)
	k.look(&c.opt)
	return k
}

// A Client makes the settings of handshakes with members.
type Client struct {
	tls spec.ClientTLS
	now atomic.Pointer[material]

	// Of the last look; one goroutine at a time has them.
	stamps  []stamp
	files   files
	urgency int      // of the warning that was given
	told    Problems // errors of the files as they are
}

// StartTLS returns the protocol in which a member is asked for TLS before a handshake; empty: it is not asked.
func (k *Client) StartTLS() string { return k.tls.StartTLS }

func newClient(t *spec.ClientTLS) *Client {
	k := &Client{tls: *t}
	k.now.Store(&material{err: errors.New("the files of tls were not read yet")})
	return k
}

// material is what was read, and the settings that were made of it.
type material struct {
	err  error // nothing could be read
	base *tls.Config

	mu sync.Mutex
	// Settings by name and member. When there are many, those that were not used lately are forgotten.
	fresh, old map[configKey]*tls.Config
}

// A configKey is what settings depend on. Each has its own sessions: a member knows only its own tickets.
type configKey struct {
	name  string
	offer string // of protocols, see spec.Offer: what is resumed was agreed on with them
	to    relay.Addr
}

// maxConfigs bounds half of the settings that are kept: clients choose server names.
const maxConfigs = 512

// errNoName is returned for a member whose certificate could be anybody's.
var errNoName = errors.New("there is no name to compare the member's certificate with; allowed: server-name in tls")

// Config returns the settings of a handshake with the member at an address. The member's certificate must be for the name that the
// configuration has, or else clientName, the server name that a client has sent, or else host, the member's own; those may be empty.
// clientProtocol is what the client has agreed on by ALPN; empty: nothing. Config does not block on files. It returns the same settings for the same arguments, with the sessions to resume; they must not be changed.
func (k *Client) Config(clientName, clientProtocol, host string, to *relay.Addr) (*tls.Config, error) {
	m := k.now.Load()
	if m.err != nil {
		return nil, m.err
	}
	key := configKey{k.tls.ServerName, k.tls.ALPN.For(clientProtocol), *to}
	if key.name == "" {
		key.name = clientName
	}
	if key.name == "" {
		key.name = host
	}
	if key.name == "" && !k.tls.NoVerify {
		return nil, errNoName
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if c := m.fresh[key]; c != nil {
		return c, nil
	}
	c := m.old[key]
	if c == nil {
		c = m.base.Clone()
		c.ServerName = key.name
		if key.offer != "" {
			c.NextProtos = strings.Split(key.offer, ",")
		}
		c.ClientSessionCache = tls.NewLRUClientSessionCache(1)
	}
	if len(m.fresh) >= maxConfigs {
		m.fresh, m.old = nil, m.fresh
	}
	if m.fresh == nil {
		m.fresh = make(map[configKey]*tls.Config)
	}
	m.fresh[key] = c
	return c, nil
}

// look reads the files if one of them has changed, and returns what has to be told.
func (k *Client) look(o *Options) (tell Problems) {
	if k.stamps == nil || slices.ContainsFunc(k.stamps, func(s stamp) bool { return s.changed(o) }) {
		f, stamps, problems := readFiles(&k.tls, o)
		k.stamps = stamps
		switch errs := problems.Errors(); {
		case len(errs) == 0:
			k.told = nil
			if k.now.Load().base == nil || f.sum != k.files.sum {
				k.files, k.urgency = f, 0
				k.now.Store(&material{base: f.config(&k.tls, o)})
				tell = problems
			}
		case errs.Error() != k.told.Error():
			k.told, tell = errs, errs
			if k.now.Load().base == nil {
				k.now.Store(&material{err: errs})
			}
		}
	}
	if k.now.Load().base == nil {
		return tell
	}
	worst, warning := k.files.checkTime(&k.tls, o)
	if worst > k.urgency {
		tell = append(tell, warning)
	}
	k.urgency = worst
	return tell
}

// CheckClient returns what is wrong with the files of a configuration of TLS, and the field that names the file.
func CheckClient(t *spec.ClientTLS, o Options, each func(field *string, p Problem)) {
	f, _, problems := readFiles(t, &o)
	if len(problems.Errors()) == 0 {
		if worst, warning := f.checkTime(t, &o); worst > 0 {
			problems = append(problems, warning)
		}
	}
	for _, p := range problems {
		field := &t.CA
		switch p.File {
		case t.Cert:
			field = &t.Cert
		case t.Key:
			field = &t.Key
		}
		each(field, p)
	}
}

// files are what the files of a configuration of TLS have.
type files struct {
	authorities *x509.CertPool // nil: the system's
	anchors     chain          // those in authorities
	own         chain
	pair        *tls.Certificate // nil: none
	sum         [sha256.Size]byte
}

// readFiles reads the files of a configuration of TLS.
func readFiles(t *spec.ClientTLS, o *Options) (f files, stamps []stamp, problems Problems) {
	sum := sha256.New()
	read := func(path string) (blocks []block, ok bool) {
		text, s, err := o.read(path, maxFile)
		stamps = append(stamps, s)
		if err == nil {
			sum.Write([]byte(path))
			sum.Write(text)
			if blocks, err = parseBlocks(text); err == nil {
				return blocks, true
			}
		}
		if at := (*lineError)(nil); errors.As(err, &at) {
			problems = append(problems, at.inFile(path))
		} else {
			problems = append(problems, failed(path, err))
		}
		return nil, false
	}
	wrong := func(path string, err *lineError) bool {
		if err != nil {
			problems = append(problems, err.inFile(path))
		}
		return err != nil
	}
	stamps = []stamp{}
	if t.CA != "" {
		if blocks, ok := read(t.CA); ok {
			var err *lineError
			if f.anchors, err = parseChain(blocks, maxAuthorities); !wrong(t.CA, err) {
				f.authorities = x509.NewCertPool()
				for _, c := range f.anchors.certs {
					f.authorities.AddCert(c)
				}
			}
		}
	}
	if t.Cert != "" {
		keyPath := t.Key
		blocks, ok := read(t.Cert)
		keys := blocks
		if keyPath == "" {
			keyPath = t.Cert
		} else {
			var okKey bool
			keys, okKey = read(keyPath)
			ok = ok && okKey
		}
		if ok {
			f.readPair(t.Cert, keyPath, blocks, keys, wrong)
		}
	}
	sum.Sum(f.sum[:0])
	return f, stamps, problems
}

func (f *files) readPair(certPath, keyPath string, blocks, keys []block, wrong func(string, *lineError) bool) {
	own, err := parseChain(blocks, maxChain)
	if wrong(certPath, err) {
		return
	}
	key, _, err := parseKey(keys)
	if wrong(keyPath, err) || wrong(certPath, own.checkKey(key)) {
		return
	}
	f.own, f.pair = own, &tls.Certificate{PrivateKey: key, Leaf: own.certs[0]}
	for _, c := range own.certs {
		f.pair.Certificate = append(f.pair.Certificate, c.Raw)
	}
}

// checkTime returns the most urgent warning of a certificate that has expired or soon will.
func (f *files) checkTime(t *spec.ClientTLS, o *Options) (worst int, warning Problem) {
	if len(f.anchors.certs) > 0 {
		// An authority that has expired beside others does no harm: files keep the old ones for a while.
		least := 4
		for i := range f.anchors.certs {
			one := chain{f.anchors.certs[i : i+1], f.anchors.lines[i : i+1]}
			if u, p := one.checkTime(t.CA, o.now()); u < least || i == 0 {
				least, warning = u, p
			}
		}
		worst = least
	}
	if u, p := f.own.checkTime(t.Cert, o.now()); u > worst {
		worst, warning = u, p
	}
	return worst, warning
}

// config returns the settings that do not depend on the member.
func (f *files) config(t *spec.ClientTLS, o *Options) *tls.Config {
	c := &tls.Config{RootCAs: f.authorities, MinVersion: t.MinVersion, InsecureSkipVerify: t.NoVerify}
	if f.pair != nil {
		// Whether or not the member names authorities that have signed it: what it says to that is clearer than what it says to none.
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return f.pair, nil }
	}
	return o.inKernel(c, t.Kernel)
}
