//go:build linux

package main

import (
	"crypto/tls"
	"fmt"
	"slices"
	"strings"

	"github.com/penstock/penstock/bench/internal/certs"
	"github.com/penstock/penstock/bench/internal/load"
	"github.com/penstock/penstock/bench/internal/peer"
)

// A mode is what the relay does with TLS.
type mode string

const (
	plain     mode = "plain"     // plain TCP on both sides
	pass      mode = "pass"      // relays TLS untouched, and looks at the server name
	terminate mode = "terminate" // ends the clients' TLS; plain TCP to the upstream
	reencrypt mode = "reencrypt" // ends it, and begins TLS with the upstream
)

// setup returns what a relay is told.
func (m mode) setup(a *certs.Authority, server certs.Pair) peer.TLS {
	t := peer.TLS{Name: certs.Name, CA: a.CA, Both: server.Both, Cert: server.Certificate, Key: server.Key}
	t.Pass, t.Terminate, t.Originate = m == pass, m == terminate || m == reencrypt, m == reencrypt
	return t
}

// sinkTLS reports whether the upstream talks TLS.
func (m mode) sinkTLS() bool { return m == pass || m == reencrypt }

// A bar is what penstock's figure should be beside another relay's.
type bar struct {
	beside string  // "nginx": the better one of its setups; "best": the best of all others but the yardstick; "": there is no bar
	limit  float64 // of ours / theirs: at least, if more is better, and else at most
}

type row struct {
	name string
	what string
	mode mode
	key  string // of the certificate
	spec load.TLSSpec
	bar  bar
}

var (
	handshakeBar = bar{"best", 0.8}
	bulkBar      = bar{"nginx", 1.1}
	idleBar      = bar{"nginx", 0.5}
	pingPongBar  = bar{"nginx", 1.0}
	noBar        = bar{}
)

// rows returns all rows, in the order in which they are measured. Except for handshakes, a row has TLS 1.3 and the ECDSA certificate: neither matters after
// the handshake but for the cipher suite, which is the same in all.
func rows() (all []row) {
	versions := []struct {
		name    string
		version uint16
	}{{"13", tls.VersionTLS13}, {"12", tls.VersionTLS12}}
	for _, resume := range []bool{false, true} {
		name, what := "full", "a full handshake"
		if resume {
			name, what = "resume", "a handshake that resumes by ticket"
		}
		for _, key := range certs.Kinds {
			for _, v := range versions {
				r := row{fmt.Sprintf("%s-%s-%s", name, key, v.name), fmt.Sprintf("connect, %s, 64 bytes and their echo, close; %s, %s certificate, X25519; 32 at a time", what, tls.VersionName(v.version), key),
					terminate, key, load.TLSSpec{Kind: load.Connect, Size: 64, Conns: 32, Version: v.version, Group: tls.X25519, Resume: resume}, handshakeBar}
				if key == "rsa" {
					r.bar = noBar
				}
				all = append(all, r)
			}
		}
		all = append(all, row{name + "-defaults", "the same with everything that Go's client offers, including X25519MLKEM768; ECDSA",
			terminate, "ecdsa", load.TLSSpec{Kind: load.Connect, Size: 64, Conns: 32, Resume: resume}, noBar})
	}
	add := func(name, what string, m mode, kind load.Kind, size, conns int, b bar) {
		all = append(all, row{name, what, m, "ecdsa", load.TLSSpec{Kind: kind, Size: size, Conns: conns, Version: tls.VersionTLS13, Group: tls.X25519, Plain: m == plain}, b})
	}
	const mb = 1 << 20
	add("up", "one stream from client to upstream, writes of 1 MiB", terminate, load.Up, mb, 1, bulkBar)
	add("down", "one stream from upstream to client, writes of 1 MiB", terminate, load.Down, mb, 1, bulkBar)
	add("up-x16", "16 streams from clients to upstream, writes of 64 KiB", terminate, load.Up, mb/16, 16, bulkBar)
	add("down-x16", "16 streams from upstream to clients, writes of 64 KiB", terminate, load.Down, mb/16, 16, bulkBar)
	add("reencrypt-up", "one stream from client to upstream, TLS on both sides, writes of 1 MiB", reencrypt, load.Up, mb, 1, noBar)
	add("reencrypt-down", "one stream from upstream to client, TLS on both sides, writes of 1 MiB", reencrypt, load.Down, mb, 1, noBar)
	add("pingpong1", "one connection, 64 bytes and their echo", terminate, load.PingPong, 64, 1, pingPongBar)
	add("pingpong64", "64 connections, 64 bytes and their echo", terminate, load.PingPong, 64, 64, pingPongBar)
	add("idle", "2,000 connections after the handshake, without a byte", terminate, load.Idle, 0, 2000, idleBar)
	add("idle-used", "2,000 connections, each after 64 KiB to the upstream and back", terminate, load.Idle, 64<<10, 2000, idleBar)
	add("pass-full", "a full handshake with the upstream, passed through by server name, 64 bytes and their echo, close; 32 at a time", pass, load.Connect, 64, 32, noBar)
	add("pass-up", "one stream from client to upstream, passed through by server name, writes of 1 MiB", pass, load.Up, mb, 1, noBar)
	add("pass-pingpong64", "64 connections, passed through by server name, 64 bytes and their echo", pass, load.PingPong, 64, 64, noBar)
	add("plain-connect", "connect, 64 bytes and their echo, close, without TLS; 32 at a time: what a handshake row has besides the handshake", plain, load.Connect, 64, 32, noBar)
	return all
}

// pick returns the named rows in the order of names. A name that ends with * stands for all that begin so.
func pick(names string) (picked []row, err error) {
	all := rows()
	for name := range strings.SplitSeq(names, ",") {
		prefix, many := strings.CutSuffix(name, "*")
		n := len(picked)
		for _, r := range all {
			if r.name == name || many && strings.HasPrefix(r.name, prefix) {
				picked = append(picked, r)
			}
		}
		if n == len(picked) {
			return nil, fmt.Errorf("row %q: allowed: %s", name, strings.Join(rowNames(all), ", "))
		}
	}
	return picked, nil
}

func rowNames(all []row) (names []string) {
	for _, r := range all {
		names = append(names, r.name)
	}
	return names
}

// suits reports whether a relay is measured in a row: nginx with small buffers only differs where its buffers matter.
func (r row) suits(relay string) bool {
	return relay != "nginx-16k" || slices.Contains([]load.Kind{load.Up, load.Down, load.Idle}, r.spec.Kind)
}
