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

// access is the permission that a route requires.
type access uint8

const (
	open access = iota // nothing
	read               // the read token, or more
	full               // the token
)

// authorize returns nil if a request may use a route that needs need.
func (s *Server) authorize(r *http.Request, need access) error {
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if local != nil && local.Network() == "unix" {
		return nil // the file mode has decided
	}
	if need == open {
		return nil
	}
	switch got := s.tokenAccess(r.Header.Get("Authorization")); {
	case got >= need:
		return nil
	case got == open:
		return api.NewProblem(http.StatusUnauthorized, "no token, or a wrong one", "Authorization: Bearer TOKEN, with the token of the configuration")
	}
	return api.NewProblem(http.StatusForbidden, "the read token does not allow that", "the full token, or the Unix socket")
}

// tokenAccess returns the access that the token of an Authorization header grants. It
// takes the same time for every wrong token.
func (s *Server) tokenAccess(header string) access {
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

// equal reports whether got is the token want, in constant time. An empty want equals
// nothing.
func equal(got, want string) bool {
	a, b := sha256.Sum256([]byte(got)), sha256.Sum256([]byte(want))
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1 && want != ""
}

// checkHost returns an error unless the Host of a request is this host. The page of another
// site that reached this listener through its own name (DNS rebinding) has another Host.
// Unix sockets are checked too, because ssh -L and socat put them within reach of a browser.
func checkHost(r *http.Request) error {
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

// checkOrigin returns an error if a request was made by a page of another origin. It is
// called for reads too, because a profile or a listing of all flows is expensive. Browsers
// send Sec-Fetch-Site to loopback addresses, and Origin with everything but simple reads.
func checkOrigin(r *http.Request) error {
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
