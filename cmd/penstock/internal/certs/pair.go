package certs

import (
	"bytes"
	"crypto/tls"
	"errors"
	"slices"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// A pair is a chain of certificates with its key, and its OCSP response if there is one.
//
//	new ──load──▶ used ──load: another──▶ used
//	               └──load: fails──▶ used, and failing ──load──▶ used
type pair struct {
	files  spec.Certificate
	stamps []stamp
	cert   *tls.Certificate // in use; nil: it was never read. It is not changed.
	chain  chain
	staple *staple

	stapled bool // the response is in cert
	absent  int  // how many times in a row it was not in its folder
	failing int  // how many times in a row it could not be read
	told    string
	urgent  int // the urgency that was told
	checks  Problems
}

// load reads the files. If that fails, what was read before stays in use.
func (p *pair) load(o *Options) (fresh bool, problems Problems) {
	next, problems := readPair(o, p.files)
	p.stamps = next.stamps
	if next.cert == nil {
		p.failing++
		return false, problems
	}
	p.failing, p.checks = 0, problems
	if p.cert != nil && slices.EqualFunc(p.cert.Certificate, next.cert.Certificate, bytes.Equal) && sameStaple(p.staple, next.staple) {
		return false, problems
	}
	p.cert, p.chain, p.staple, p.stapled, p.urgent = next.cert, next.chain, next.staple, false, 0
	return true, problems
}

func sameStaple(a, b *staple) bool {
	return a == b || a != nil && b != nil && bytes.Equal(a.der, b.der)
}

// changed reports whether the files may have changed.
func (p *pair) changed(o *Options) bool {
	for i := range p.stamps {
		if p.stamps[i].changed(o) {
			return true
		}
	}
	return false
}

// at puts the response that is valid now into the certificate, or takes it out, and warns of the end of both.
func (p *pair) at(now time.Time) (changed bool, problems Problems) {
	der, why := p.staple.at(now)
	if (der != nil) != p.stapled {
		next := *p.cert
		next.OCSPStaple = der
		p.cert, p.stapled, changed = &next, der != nil, true
	}
	if why != "" && p.told != why {
		p.told = why
		problems = append(problems, Problem{File: p.files.OCSP, Text: why + ": it is not sent", Warning: true})
	}
	if u, warning := p.chain.checkTime(p.files.Chain, now); u > p.urgent {
		p.urgent = u
		problems = append(problems, warning)
	}
	return changed, problems
}

// readPair reads the files of a pair. Its cert is nil if there is an error among the problems.
func readPair(o *Options, files spec.Certificate) (p pair, problems Problems) {
	p.files = files
	read := func(path string, most int64) []byte {
		text, s, err := o.read(path, most)
		p.stamps = append(p.stamps, s)
		if err != nil {
			problems = append(problems, failed(path, err))
		}
		return text
	}
	fail := func(path string, err *lineError) {
		problems = append(problems, err.inFile(path))
	}
	blocksOf := func(path string, text []byte) []block {
		blocks, err := parseBlocks(text)
		var at *lineError
		if errors.As(err, &at) {
			fail(path, at)
		}
		return blocks
	}
	text := read(files.Chain, maxFile)
	var keyText []byte
	if files.Key != "" {
		keyText = read(files.Key, maxFile)
	}
	if len(problems) > 0 {
		return p, problems
	}
	blocks := blocksOf(files.Chain, text)
	keyBlocks, keyFile := blocks, files.Chain
	if files.Key != "" {
		keyBlocks, keyFile = blocksOf(files.Key, keyText), files.Key
	}
	if len(problems) > 0 {
		return p, problems
	}
	c, bad := parseChain(blocks, maxChain)
	if bad != nil {
		fail(files.Chain, bad)
	}
	key, line, badKey := parseKey(keyBlocks)
	if badKey != nil {
		fail(keyFile, badKey)
	}
	if len(problems) > 0 {
		return p, problems
	}
	if bad := c.checkKey(key); bad != nil {
		if keyFile != files.Chain {
			bad.text += "; the key is in " + Problem{File: keyFile, Line: line}.place()
		}
		fail(files.Chain, bad)
		return p, problems
	}
	problems = append(problems, c.check(files.Chain)...)
	if len(problems.Errors()) > 0 {
		return p, problems
	}
	if files.OCSP != "" {
		before := len(problems)
		if der := read(files.OCSP, maxStaple); len(problems) == before {
			var err error
			if p.staple, err = parseStaple(der, &c); err != nil {
				problems = append(problems, Problem{File: files.OCSP, Text: err.Error() + "; it is not sent"})
			}
		}
		for i := before; i < len(problems); i++ {
			problems[i].Warning = true
		}
	}
	if mustStaple(c.certs[0]) && p.staple == nil {
		problems = append(problems, Problem{File: files.Chain, Line: c.lines[0], Text: "the certificate asks clients to refuse it without an OCSP response (must-staple), and there is none", Warning: true})
	}
	p.chain = c
	p.cert = &tls.Certificate{PrivateKey: key, Leaf: c.certs[0]}
	for _, cert := range c.certs {
		p.cert.Certificate = append(p.cert.Certificate, cert.Raw)
	}
	return p, problems
}
