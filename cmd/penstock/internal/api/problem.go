package api

import (
	"fmt"
	"net/http"
)

// Problem is an error of the API, in the format of RFC 9457. It implements error.
type Problem struct {
	Type    string        `json:"type"` // about:blank: the title of the status suffices
	Title   string        `json:"title"`
	Status  int           `json:"status"`
	Detail  string        `json:"detail"`
	Allowed string        `json:"allowed,omitempty"`
	Errors  []ConfigError `json:"errors,omitempty"` // of a configuration
}

// Error returns one line: what is wrong, and what is allowed.
func (p *Problem) Error() string {
	if p.Allowed == "" {
		return p.Detail
	}
	return p.Detail + "; allowed: " + p.Allowed
}

// NewProblem returns a problem with an HTTP status. Allowed may be empty.
func NewProblem(status int, detail, allowed string) *Problem {
	return &Problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: detail, Allowed: allowed}
}

// NotFound returns the problem for a name that does not exist.
func NotFound(kind, name, allowed string) *Problem {
	return NewProblem(http.StatusNotFound, fmt.Sprintf("no %s %s", kind, Quote(name)), allowed)
}

// BadConfig returns the problem for an invalid configuration.
func BadConfig(errs []ConfigError) *Problem {
	p := NewProblem(http.StatusUnprocessableEntity, fmt.Sprintf("configuration rejected, nothing changed: %d errors", len(errs)), "")
	if len(errs) == 1 {
		p.Detail = "configuration rejected, nothing changed"
	}
	p.Errors = errs
	return p
}

// Quote returns text from a client for use in a message: quoted, without control characters,
// and shortened.
func Quote(s string) string {
	if len(s) > 100 {
		s = s[:100] + "..."
	}
	return fmt.Sprintf("%q", s)
}
