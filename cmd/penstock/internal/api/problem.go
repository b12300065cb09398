package api

import (
	"fmt"
	"net/http"
)

// Problem is an error as RFC 9457 has it. It is an error, too.
type Problem struct {
	Type    string        `json:"type"` // about:blank: Title says it all
	Title   string        `json:"title"`
	Status  int           `json:"status"`
	Detail  string        `json:"detail"`
	Allowed string        `json:"allowed,omitempty"`
	Errors  []ConfigError `json:"errors,omitempty"` // of a configuration
}

// Error is one line: what is wrong, and what is allowed.
func (p *Problem) Error() string {
	if p.Allowed == "" {
		return p.Detail
	}
	return p.Detail + "; allowed: " + p.Allowed
}

// NewProblem returns a problem with a status of HTTP. Allowed may be empty.
func NewProblem(status int, detail, allowed string) *Problem {
	return &Problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: detail, Allowed: allowed}
}

// NotFound says that there is no such thing, and where to find those that there are.
func NotFound(kind, name, allowed string) *Problem {
	return NewProblem(http.StatusNotFound, fmt.Sprintf("no %s %s", kind, Quote(name)), allowed)
}

// BadConfig says what is wrong with a configuration.
func BadConfig(errs []ConfigError) *Problem {
	p := NewProblem(http.StatusUnprocessableEntity, fmt.Sprintf("the configuration has %d errors, and nothing was changed", len(errs)), "")
	if len(errs) == 1 {
		p.Detail = "the configuration has an error, and nothing was changed"
	}
	p.Errors = errs
	return p
}

// Quote makes text of a client fit for a message: in quotes, without control
// characters, and not long.
func Quote(s string) string {
	if len(s) > 100 {
		s = s[:100] + "..."
	}
	return fmt.Sprintf("%q", s)
}
