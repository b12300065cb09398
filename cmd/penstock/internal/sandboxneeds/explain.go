package sandboxneeds

import (
	"errors"
	"io/fs"
	"net"
	"path/filepath"
	"strconv"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// A RefusedError is an error that the sandbox has caused: the process may not do what it tried, and its policy says so.
type RefusedError struct {
	Err  error
	Need Need // what the sandbox does not allow
}

// Error returns the error, and what the sandbox does not have.
func (e *RefusedError) Error() string { return e.Err.Error() + e.Why() }

// Why returns what the sandbox does not have, in parentheses after a space.
func (e *RefusedError) Why() string {
	return " (the sandbox has no " + e.Need.words(kinds[e.Need.Kind].thing) + ")"
}

// Unwrap returns the error that the sandbox has caused.
func (e *RefusedError) Unwrap() error { return e.Err }

// Explain returns an error, as a [RefusedError] if it is for lack of permission to open a file or to connect, and the policy does not
// allow that.
func (h *Held) Explain(err error) error {
	var file *fs.PathError
	var socket *net.OpError
	switch {
	case !h.mayHaveRefused(err):
	case errors.As(err, &file) && file.Op == "open": // whether to be written, it does not say; what may be written may be read
		n := Needs{{Kind: Read, Path: file.Path}}
		if real, err := filepath.EvalSymlinks(file.Path); err == nil {
			n[0].Path = real
		}
		return h.explain(err, n)
	case errors.As(err, &socket) && socket.Addr != nil:
		return h.ExplainConnect(err, endpointOf(socket.Addr))
	}
	return err
}

// ExplainConnect does the same for an error of a connection to an endpoint.
func (h *Held) ExplainConnect(err error, to spec.Endpoint) error {
	if !h.mayHaveRefused(err) {
		return err
	}
	return h.explain(err, OfEndpoint(Upstream, to, ""))
}

func (h *Held) mayHaveRefused(err error) bool {
	return h != nil && errors.Is(err, fs.ErrPermission) && !errors.As(err, new(*RefusedError))
}

func (h *Held) explain(err error, n Needs) error {
	for _, a := range h.Missing(n, nil) {
		return &RefusedError{err, a}
	}
	return err
}

// endpointOf returns an address of package net.
func endpointOf(a net.Addr) (e spec.Endpoint) {
	if e.Kind.UnmarshalText([]byte(a.Network())) != nil {
		return e
	}
	if e.Path = a.String(); e.Kind == spec.TCP || e.Kind == spec.UDP {
		host, port, _ := net.SplitHostPort(e.Path)
		n, _ := strconv.ParseUint(port, 10, 16)
		e.Host, e.Port, e.Path = host, uint16(n), ""
	}
	return e
}
