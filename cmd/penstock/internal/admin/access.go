package admin

import (
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"net/netip"
	"net/url"
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

// local reports whether a request names this host. The page of another site that reached
// this listener by a name of its own (DNS rebinding) does not. The Unix socket
// asks too: ssh -L and socat put it within reach of a browser.
func local(r *http.Request) error {
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

// sameOrigin reports whether a request comes from a page of this server, or from
// no page at all. It is asked for reading too: to make a profile, or to
// walk over all flows, costs something. Browsers send Sec-Fetch-Site to loopback
// addresses, and Origin with everything but simple reads.
func sameOrigin(r *http.Request) error {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "same-origin", "none":
		return nil
	case "":
		origin := r.Header.Get("Origin")
		if origin == "" {
			return nil
		}
		if u, err := url.Parse(origin); err == nil && u.Host == r.Host {
			return nil
		}
	}
	return api.NewProblem(http.StatusForbidden, "a request from the page of another origin", "a request without Origin, or of the same origin")
}
