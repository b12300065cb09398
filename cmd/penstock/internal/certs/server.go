package certs

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/relay/hold"
)

// maxPairs bounds the certificates of a listener.
const maxPairs = 4096

// A Server has the certificates of a listener, and what else its handshakes need. Config may be called at any time by any goroutine; the
// others serialize themselves.
//
//	Open ──Refresh: a file changed──▶ another table, at once for all handshakes that begin
//	     ──Refresh: it cannot be read──▶ as before, and a problem
type Server struct {
	spec    *spec.ServerTLS
	options Options
	current atomic.Pointer[table]

	mu       sync.Mutex
	pairs    []*pair // in order: the first is the default
	folders  map[string]*folder
	clients  *clients
	tickets  *tickets // nil: none are made
	told     map[string]string
	failed   map[string]int // how many times in a row what is not a pair could not be read, by file
	failures int64
}

// A folder is what was last found in one.
type folder struct {
	stamp stamp
	found []spec.Certificate
}

// Open reads what a listener's tls names. Without errors among the problems, or with Options.Incomplete, it returns the server; warnings are
// told in any case. before is what had these certificates until now, or nil: its keys for tickets go on.
func Open(t *spec.ServerTLS, o Options, before *Server) (*Server, Problems) {
	s := &Server{spec: t, options: o, folders: map[string]*folder{}, told: map[string]string{}, failed: map[string]int{}}
	var problems Problems
	files, bad := s.find()
	problems = append(problems, bad...)
	for _, f := range files {
		p := &pair{files: f}
		_, bad := p.load(&s.options)
		problems = append(problems, bad...)
		s.tellWarnings(&Change{}, f.Chain, bad) // told by the caller
		s.pairs = append(s.pairs, p)
	}
	if !t.Tickets.Off {
		s.openTickets(before)
		if s.tickets.file != "" {
			_, bad := s.tickets.load(&s.options)
			problems = append(problems, bad...)
		}
	}
	if t.Clients != nil {
		var bad Problems
		s.clients, bad = readClients(&s.options, *t.Clients)
		problems = append(problems, bad...)
		s.tellWarnings(&Change{}, t.Clients.CA, bad)
		s.tellWarnings(&Change{}, t.Clients.CRL, s.clients.expired(o.now()))
	}
	now := o.now()
	for _, p := range s.pairs {
		if p.cert != nil {
			_, bad := p.at(now)
			problems = append(problems, bad...)
		}
	}
	if len(s.pairs) == 0 && len(problems.Errors()) == 0 {
		problems = append(problems, Problem{Text: "there are no certificates"})
	}
	if len(problems.Errors()) > 0 && !o.Incomplete {
		return nil, problems
	}
	s.build()
	return s, problems
}

// openTickets takes the keys over from a server before, if they are from the same place. Two servers may have them for a while.
func (s *Server) openTickets(before *Server) {
	if before != nil {
		before.mu.Lock()
		defer before.mu.Unlock()
		if t := before.tickets; t != nil && t.file == "" && s.spec.Tickets.Keys == "" {
			s.tickets = t
			return
		}
	}
	s.tickets = newTickets(s.spec.Tickets.Keys)
}

// find returns the files of all pairs. A folder that cannot be read has those that it had.
func (s *Server) find() (files []spec.Certificate, problems Problems) {
	for _, c := range s.spec.Certificates {
		if c.Folder == "" {
			files = append(files, c)
			continue
		}
		f := s.folders[c.Folder]
		if f == nil || f.stamp.changed(&s.options) {
			info, _ := s.options.stat(c.Folder)
			next := &folder{stamp: stamp{c.Folder, info, time.Now()}}
			var err error
			if next.found, err = list(&s.options, c.Folder); err != nil {
				problems = append(problems, failed(c.Folder, err))
				if f != nil {
					files = append(files, f.found...)
				}
				continue
			}
			f, s.folders[c.Folder] = next, next
		}
		files = append(files, f.found...)
	}
	seen := make(map[string]bool, len(files))
	files = slices.DeleteFunc(files, func(c spec.Certificate) bool {
		twice := seen[c.Chain]
		seen[c.Chain] = true
		return twice
	})
	if len(files) > maxPairs {
		problems = append(problems, Problem{File: files[maxPairs].Chain, Text: fmt.Sprintf("there are more than %d certificates", maxPairs)})
		files = files[:maxPairs]
	}
	return files, problems
}

// Config returns the configuration for a handshake with a client that has sent a server name, or none. If the name is to be refused, the handshake
// fails with the alert unrecognized_name. The configuration must not be changed.
func (s *Server) Config(name string) *tls.Config { return s.current.Load().find(name) }

// Refused returns what is to be told of a handshake that has failed with a client that had sent a server name: err, or that no certificate has
// the name, for which the error of crypto/tls is "no certificates configured".
func (s *Server) Refused(name string, err error) error {
	if t := s.current.Load(); !s.spec.RefuseUnknown || t.find(name) != t.unknown {
		return err
	}
	return &refusedName{name, err}
}

// refusedName is the error of a client that was refused for the server name it has sent.
type refusedName struct {
	name string
	err  error
}

func (e *refusedName) Error() string {
	return fmt.Sprintf("TLS handshake with the client: no certificate has the server name %q, and unknown-names is refuse", e.name)
}

func (e *refusedName) Unwrap() error { return e.err }

// Timeout returns the maximum time of a handshake.
func (s *Server) Timeout() time.Duration { return s.spec.Handshake }

// build makes the table of what is read now. The caller holds the lock, or nobody else has the server.
func (s *Server) build() {
	var certs []*tls.Certificate
	for _, p := range s.pairs {
		if p.cert != nil {
			certs = append(certs, p.cert)
		}
	}
	s.current.Store(newTable(certs, s.spec.RefuseUnknown, s.base))
}

// cipherSuites are those of TLS 1.2 that Go has by default, without those in CBC mode, which only clients from before 2013 need, and scanners
// count as weak. Those of TLS 1.3 cannot be chosen.
var cipherSuites = func() (list []uint16) {
	for _, c := range tls.CipherSuites() {
		if slices.Contains(c.SupportedVersions, tls.VersionTLS12) && !strings.Contains(c.Name, "_CBC_") {
			list = append(list, c.ID)
		}
	}
	return list
}()

// base returns a configuration without certificates.
func (s *Server) base() *tls.Config {
	c := &tls.Config{
		MinVersion:   cmp.Or(s.spec.MinVersion, tls.VersionTLS12),
		NextProtos:   s.spec.ALPN,
		CipherSuites: cipherSuites,
		// Small records at first help browsers, and cost as many handlings of them: 10% of the CPU of bulk.
		DynamicRecordSizingDisabled: true,
		SessionTicketsDisabled:      s.tickets == nil,
		Time:                        s.options.Now,
	}
	if s.tickets != nil {
		s.tickets.use(c)
	}
	if s.clients != nil {
		s.clients.use(c)
	}
	return s.options.inKernel(c, s.spec.Kernel)
}

// inKernel returns a configuration whose connections are given to the kernel if that is wanted, and the kernel has TLS.
func (o *Options) inKernel(c *tls.Config, wanted bool) *tls.Config {
	if wanted && o.KernelTLS != nil && o.KernelTLS() == nil {
		return hold.TLSInKernel(c)
	}
	return c
}

// A Change is what Refresh has found.
type Change struct {
	Loaded   []string // the files that are used as they are now
	Problems Problems // those that were not told before; errors leave what was there in use
}

// Refresh reads the files that have changed. It is to be called every few seconds. A file that cannot be read is told when it fails for the second
// time: a certificate and its key are replaced one after the other.
func (s *Server) Refresh() (change Change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rebuild := s.refreshPairs(&change)
	if s.tickets != nil && s.tickets.file != "" && (s.tickets.stamp.changed(&s.options) || s.failed[s.tickets.file] > 0) {
		fresh, problems := s.tickets.load(&s.options)
		s.tell(&change, s.tickets.file, fresh, problems)
	}
	if s.refreshClients(&change) {
		rebuild = true
	}
	if rebuild {
		s.build()
	}
	return change
}

func (s *Server) refreshClients(change *Change) bool {
	if s.clients == nil || !s.clients.changed(&s.options) && s.failed[s.clients.files.CA] == 0 {
		if s.clients != nil {
			s.tellWarnings(change, s.clients.files.CRL, s.clients.expired(s.options.now()))
		}
		return false
	}
	next, problems := readClients(&s.options, s.clients.files)
	if next.pool == nil {
		s.clients.stamps = next.stamps
		s.tell(change, next.files.CA, false, problems)
		return false
	}
	fresh := next.sum != s.clients.sum
	s.clients = next
	s.tell(change, next.files.CA, fresh, problems)
	s.tellWarnings(&Change{}, next.files.CRL, next.expired(s.options.now())) // it has been told
	return fresh
}

// refreshPairs reads the pairs whose files have changed, and reports whether the table must be made anew.
func (s *Server) refreshPairs(change *Change) (rebuild bool) {
	files, problems := s.find()
	s.tell(change, "folders", false, problems)
	before := make(map[string]*pair, len(s.pairs))
	for _, p := range s.pairs {
		before[p.files.Chain] = p
	}
	now := s.options.now()
	var next []*pair
	for _, f := range files {
		p := before[f.Chain]
		delete(before, f.Chain)
		switch {
		case p == nil:
			p = &pair{files: f}
		case p.files != f: // a key or response came, or went
			p.files, p.stamps = f, nil
		case p.failing == 0 && !p.changed(&s.options):
			p.absent = 0
			next = append(next, p)
			continue
		}
		p.absent = 0
		fresh, problems := p.load(&s.options)
		s.tell(change, f.Chain, fresh, problems)
		rebuild = rebuild || fresh
		next = append(next, p)
	}
	// What is gone from a folder stays until it has been gone twice: a file may be replaced by deleting it first.
	for _, p := range s.pairs {
		if before[p.files.Chain] == nil {
			continue
		}
		if p.absent++; p.absent < 2 && p.cert != nil {
			next = append(next, p)
			continue
		}
		rebuild = true
		delete(s.told, p.files.Chain)
		delete(s.failed, p.files.Chain)
	}
	used := slices.ContainsFunc(next, func(p *pair) bool { return p.cert != nil })
	if !used { // the last one stays, whatever happens
		return false
	}
	s.pairs = next
	for _, p := range s.pairs {
		if p.cert == nil {
			continue
		}
		changed, problems := p.at(now)
		rebuild = rebuild || changed
		change.Problems = append(change.Problems, problems...)
	}
	return rebuild
}

// tell adds what has come of reading a file: that it is used, or what is wrong, once. Errors count when they occur for the second time in a row.
func (s *Server) tell(change *Change, file string, fresh bool, problems Problems) {
	if fresh {
		change.Loaded = append(change.Loaded, file)
	}
	errs := problems.Errors()
	if len(errs) == 0 {
		if s.failed[file] > 1 && !fresh {
			change.Loaded = append(change.Loaded, file)
		}
		delete(s.failed, file)
		s.tellWarnings(change, file, problems)
		return
	}
	if s.failed[file]++; s.failed[file] < 2 {
		return
	}
	if s.failed[file] == 2 {
		s.failures++
	}
	s.tellWarnings(change, file, errs)
}

// tellWarnings adds problems, unless they were the last that were told of the file.
func (s *Server) tellWarnings(change *Change, file string, problems Problems) {
	text := ""
	for _, p := range problems {
		text += p.String() + "\n"
	}
	if text != "" && s.told[file] != text {
		change.Problems = append(change.Problems, problems...)
	}
	if text == "" {
		delete(s.told, file)
	} else {
		s.told[file] = text
	}
}

// Failures returns how often a file that had changed could not be read.
func (s *Server) Failures() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failures
}

// Info is what there is to know about a certificate that is in use.
type Info struct {
	File      string
	Names     []string // its DNS names, as far as they are used to choose it
	Key       string   // the kind of its key
	Issuer    string
	Serial    string // in hexadecimal digits
	NotBefore time.Time
	NotAfter  time.Time // of that certificate of the chain that ends first
	Stapled   bool
	// StapleUntil is the end of the OCSP response that was read; zero: there is none.
	StapleUntil time.Time
	Failing     bool // the files have changed, and cannot be read
}

// Certificates returns the certificates in use.
func (s *Server) Certificates() (list []Info) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.pairs {
		if p.cert == nil {
			continue
		}
		leaf := p.chain.certs[0]
		end := leaf.NotAfter
		for _, c := range p.chain.certs[1:] {
			if c.NotAfter.Before(end) {
				end = c.NotAfter
			}
		}
		info := Info{File: p.files.Chain, Names: namesOf(leaf), Key: algorithm(leaf), Issuer: leaf.Issuer.String(), Serial: leaf.SerialNumber.Text(16),
			NotBefore: leaf.NotBefore, NotAfter: end, Stapled: p.stapled, Failing: p.failing > 1}
		if p.staple != nil {
			info.StapleUntil = p.staple.until
		}
		list = append(list, info)
	}
	return list
}

// Failing returns the files that have changed and cannot be read, in the order of their names.
func (s *Server) Failing() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var files []string
	for file := range maps.Keys(s.failed) {
		if s.failed[file] > 1 {
			files = append(files, file)
		}
	}
	slices.Sort(files)
	return files
}
