package admin

import (
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
)

// access is what a route asks of a client.
type access uint8

const (
	open access = iota // nothing
	read               // the read token, or more
	full               // the token
)

// admit tells whether a request may have what asks for need.
func (s *Server) admit(r *http.Request, need access) error {
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if local != nil && local.Network() == "unix" {
		return nil // the file's mode has decided
	}
	if need == open {
		return nil
	}
	switch got := s.grants(r.Header.Get("Authorization")); {
	case got >= need:
		return nil
	case got == open:
		return api.NewProblem(http.StatusUnauthorized, "no token, or a wrong one", "Authorization: Bearer TOKEN, with the token of the configuration")
	}
	return api.NewProblem(http.StatusForbidden, "the read token does not allow that", "the full token, or the Unix socket")
}

// grants tells what a header's token is good for. It takes the same time for
// every wrong one.
func (s *Server) grants(header string) access {
	scheme, token, _ := strings.Cut(header, " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return open
	}
	got := open
	if equal(token, s.config.ReadToken) {
		got = read
	}
	if equal(token, s.config.Token) {
		got = full
	}
	return got
}

// equal is false for a token that there is not.
func equal(got, want string) bool {
	a, b := sha256.Sum256([]byte(got)), sha256.Sum256([]byte(want))
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1 && want != ""
}

// ours tells whether a request on TCP names this host. A page that a browser got
// from elsewhere, by a name that now leads here, does not (DNS rebinding).
func ours(r *http.Request) error {
	if local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr); local != nil && local.Network() == "unix" {
		return nil
	}
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.Trim(host, "[]")
	if ip, err := netip.ParseAddr(host); err == nil && ip.IsLoopback() || strings.EqualFold(host, "localhost") {
		return nil
	}
	return api.NewProblem(http.StatusMisdirectedRequest, "Host: "+api.Quote(r.Host), "localhost, or a loopback address")
}
