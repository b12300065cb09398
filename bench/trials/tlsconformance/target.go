//go:build linux

package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/penstock/penstock/bench/internal/certs"
	"github.com/penstock/penstock/bench/internal/peer"
	"github.com/penstock/penstock/internal/testport"
)

// other is the name that the second certificate is for.
const other = "other.example"

// A setup is how a relay is configured for some of the cases.
type setup string

const (
	ecdsaSetup  setup = "ecdsa"   // certificates by name, ALPN h2 and http/1.1
	rsaSetup    setup = "rsa"     // an RSA certificate
	stapleSetup setup = "staple"  // an OCSP response
	clientSetup setup = "clients" // clients need certificates
	strictSetup setup = "strict"  // unknown server names are refused
)

// errCannot is the error of a case that a relay cannot pass, because it does not offer that, or the machine lacks a tool.
type errCannot string

func (e errCannot) Error() string { return string(e) }

// A target is a relay that runs.
type target struct {
	*world
	relay    string
	addr     string
	port     string
	upstream *upstream
	stop     func() string // returns what it has printed
}

// world is what all targets share.
type world struct {
	dir       string
	self      string
	authority *certs.Authority
	server    map[string]certs.Pair // by kind of key
	second    certs.Pair            // for other
	client    certs.Pair
	stranger  certs.Pair // a client's, by an authority that nobody trusts
	staple    string     // "" if it could not be made
	tlsfuzzer string     // its checkout
	python    string     // the one that has what the tools need
	patience  time.Duration
}

func newWorld(dir string, rsa bool) (w *world, err error) {
	w = &world{dir: dir, server: make(map[string]certs.Pair), patience: 30 * time.Second}
	if w.authority, err = certs.New(dir); err != nil {
		return nil, err
	}
	for _, kind := range certs.Kinds {
		if kind == "rsa" && !rsa {
			continue
		}
		if w.server[kind], err = w.authority.Server(kind, kind, certs.Name, "localhost"); err != nil {
			return nil, err
		}
	}
	if w.second, err = w.authority.Server("second", "ecdsa", other); err != nil {
		return nil, err
	}
	if w.client, err = w.authority.Client("client", "ecdsa", "spiffe://relay.example/client"); err != nil {
		return nil, err
	}
	elsewhere := filepath.Join(dir, "elsewhere")
	if err := os.Mkdir(elsewhere, 0o755); err != nil {
		return nil, err
	}
	stranger, err := certs.New(elsewhere)
	if err != nil {
		return nil, err
	}
	if w.stranger, err = stranger.Client("stranger", "ecdsa", "spiffe://elsewhere.example/client"); err != nil {
		return nil, err
	}
	return w, w.makeStaple()
}

// makeStaple has openssl(1) answer for the authority that the certificate is good.
func (w *world) makeStaple() error {
	if _, err := exec.LookPath("openssl"); err != nil {
		return nil
	}
	file := func(name string) string { return filepath.Join(w.dir, name) }
	leaf := w.server["ecdsa"]
	expires := time.Now().Add(24 * time.Hour).UTC().Format("060102150405Z")
	if err := os.WriteFile(file("index.txt"), fmt.Appendf(nil, "V\t%s\t\t%02X\tunknown\t/CN=%s\n", expires, leaf.Serial, certs.Name), 0o644); err != nil {
		return err
	}
	staple := leaf.Both + ".ocsp" // where HAProxy looks
	for _, args := range [][]string{
		{"ocsp", "-issuer", w.authority.CA, "-cert", leaf.Certificate, "-reqout", file("request.der"), "-no_nonce"},
		{"ocsp", "-index", file("index.txt"), "-CA", w.authority.CA, "-rsigner", w.authority.CA, "-rkey", w.authority.File, "-reqin", file("request.der"), "-respout", file("staple.der"), "-ndays", "7"},
	} {
		if out, err := exec.Command("openssl", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("openssl %s: %w\n%s", args[0], err, out)
		}
	}
	chain, err := os.ReadFile(leaf.Certificate)
	if err != nil {
		return err
	}
	issuer, err := os.ReadFile(w.authority.CA)
	if err != nil {
		return err
	}
	w.staple = staple
	return os.WriteFile(file("chain.pem"), append(chain, issuer...), 0o644)
}

// config returns what the relay is told.
func (w *world) config(s setup) peer.TLS {
	pair := w.server["ecdsa"]
	if s == rsaSetup {
		pair = w.server["rsa"]
	}
	t := peer.TLS{Terminate: true, Name: certs.Name, CA: w.authority.CA, Both: pair.Both, Cert: pair.Certificate, Key: pair.Key}
	switch s {
	case ecdsaSetup:
		t.ALPN, t.Other, t.OtherBoth, t.OtherCert, t.OtherKey = "h2 http/1.1", other, w.second.Both, w.second.Certificate, w.second.Key
	case stapleSetup:
		t.OCSP, t.Cert = filepath.Join(w.dir, "staple.der"), filepath.Join(w.dir, "chain.pem") // with the issuer, whose signature the response has
	case clientSetup:
		t.Clients = w.authority.CA
	case strictSetup:
		t.Strict = true
	}
	return t
}

// start starts a relay.
func (w *world) start(p peer.Peer, s setup) (*target, error) {
	config := w.config(s)
	if lacks := peer.Lacks(p.Name, config); lacks != "" {
		return nil, errCannot(lacks)
	}
	if s == stapleSetup {
		if w.staple == "" {
			return nil, errCannot("no openssl(1), which makes the response")
		}
		// HAProxy staples whatever lies beside the certificate.
		text, err := os.ReadFile(config.OCSP)
		if err != nil {
			return nil, err
		}
		if err := os.WriteFile(w.staple, text, 0o644); err != nil {
			return nil, err
		}
		defer os.Remove(w.staple)
		issuer := w.server["ecdsa"].Both + ".issuer"
		if text, err = os.ReadFile(w.authority.CA); err != nil {
			return nil, err
		}
		if err := os.WriteFile(issuer, text, 0o644); err != nil {
			return nil, err
		}
		defer os.Remove(issuer)
	}
	up, err := newUpstream()
	if err != nil {
		return nil, err
	}
	port, release, err := testport.Reserve()
	if err != nil {
		up.Close()
		return nil, err
	}
	dir, err := os.MkdirTemp(w.dir, "relay-")
	if err != nil {
		return nil, err
	}
	t := &target{world: w, relay: p.Name, addr: "127.0.0.1:" + port, port: port, upstream: up}
	// It dies with the thread that starts it, which is one of Go's and stays.
	r, err := peer.Start(p, peer.Setup{Listen: t.addr, Upstream: up.Addr().String(), Loops: 2, Files: 4096, Dir: dir, TLS: config})
	if err != nil {
		up.Close()
		release()
		return nil, err
	}
	t.stop = func() string {
		defer release()
		defer up.Close()
		return r.Stop()
	}
	return t, nil
}

// alive returns an error if the relay does not accept any more.
func (t *target) alive() error {
	c, err := net.DialTimeout("tcp", t.addr, t.patience)
	if err != nil {
		return fmt.Errorf("the relay is gone: %w", err)
	}
	return c.Close()
}

// run runs a tool to its end and returns what it printed.
func (t *target) run(patience time.Duration, name string, args ...string) (string, error) {
	return t.runCommand(patience, exec.Command(name, args...))
}

func (t *target) runCommand(patience time.Duration, cmd *exec.Cmd) (string, error) {
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &out, &out, time.Second
	if err := cmd.Start(); err != nil {
		return "", err
	}
	timer := time.AfterFunc(patience, func() { cmd.Process.Kill() })
	defer timer.Stop()
	err := cmd.Wait()
	return out.String(), err
}

// needs returns the error of a case whose tool is not installed.
func needs(tool string) error {
	if _, err := exec.LookPath(tool); err != nil {
		return errCannot("no " + tool)
	}
	return nil
}

func cannot(err error) bool {
	var e errCannot
	return errors.As(err, &e)
}
