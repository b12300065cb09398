package keeping

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/earlykeeper"
	"github.com/penstock/penstock/cmd/penstock/internal/host"
	"github.com/penstock/penstock/cmd/penstock/internal/sandboxneeds"
	"github.com/penstock/penstock/sandbox"
)

// The keeper knows the policy of each worker (keeper.Worker.SetPolicy), and tells the next one, which is why that can enter the same
// sandbox as the one before it without believing a word of it:
//
//	after a crash        ──EnterBefore──▶ in it ──▶ what the worker before has left
//	planned, or first    ──▶ its own files ──▶ sockets, logs ──enter──▶ in it ──▶ flows
//
// A planned worker that finds no configuration of its own, because the file is broken or the registry is away, takes that of the worker before,
// and enters its sandbox first. If the keeper knows no sandbox, because the worker before died before it was ready, its configuration is not used.

// sandboxBefore returns the sandbox of the worker before; nil: it is not known, or there was no worker.
func sandboxBefore(policy string) (*earlykeeper.Policy, error) {
	if policy == "" {
		return nil, nil
	}
	p, err := earlykeeper.ParsePolicy(policy)
	if err != nil {
		return nil, fmt.Errorf("the sandbox of the worker before: %w", err)
	}
	return p, nil
}

// ModeOff is the mode of a worker without a sandbox.
const ModeOff = "off"

// ErrNotKnown is returned by EnterBefore.
var ErrNotKnown = errors.New("the keeper does not know the sandbox of the worker before")

// Trusts reports whether this process may act on what the worker before has written: that worker had no sandbox, or
// this one has the same. A keeper of an
// earlier version knows of no sandboxes.
func (k *Link) Trusts() bool {
	return k.First() || k.held != nil || !k.MayAsk() || k.before != nil && k.before.Mode == ModeOff
}

// EnterBefore makes this process enter the sandbox of the worker before, for good. It does nothing if that had none, or if it has entered.
func (k *Link) EnterBefore() error {
	if k.Trusts() {
		return nil
	}
	if k.before == nil {
		return ErrNotKnown
	}
	var p sandbox.Policy
	err := json.Unmarshal(k.before.Sandbox, &p)
	if err == nil {
		k.held, err = EnterSandbox(p)
	}
	if err == nil {
		err = k.SetPolicy("") // it stays the same
	}
	if err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return fmt.Errorf("the sandbox of the worker before: %w", err)
	}
	return nil
}

// SandboxBefore returns the sandbox of the worker before, if this process has entered it; nil: it has not.
func (k *Link) SandboxBefore() *sandboxneeds.Held { return k.held }

// InSandboxBefore reports whether this process is in the sandbox of the worker before.
func (k *Link) InSandboxBefore() bool { return k.held != nil }

// EnterSandbox makes this process enter a sandbox.
func EnterSandbox(p sandbox.Policy) (*sandboxneeds.Held, error) {
	// With cgo, the C library would load code for some lookups, which is refused then.
	net.DefaultResolver.PreferGo = true
	// What package x509 and package time read at their first use, from files that need no longer be readable then.
	if !sandboxneeds.ReadsAuthorities(&p) {
		x509.SystemCertPool()
	}
	_, _ = time.Now().Zone()
	h := &sandboxneeds.Held{Policy: p, Had: host.EffectiveCapabilities()}
	var err error
	if h.Report, err = sandbox.Enter(p); err != nil {
		return nil, err
	}
	return h, nil
}

// askTimeout is longer than the keeper's.
const askTimeout = 10 * time.Second

// Asker returns a function that asks the keeper to open what this process may not open.
func (k *Link) Asker(request func(path string) string) func(path string) (*os.File, error) {
	return func(path string) (*os.File, error) {
		path, err := filepath.Abs(path)
		if err != nil {
			return nil, err
		}
		ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
		defer cancel()
		fd, err := k.Ask(ctx, request(path))
		if err != nil {
			return nil, err
		}
		return os.NewFile(uintptr(fd), path), nil
	}
}
