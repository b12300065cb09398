package app

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"slices"

	"github.com/penstock/penstock/cmd/penstock/internal/certs"
	"github.com/penstock/penstock/cmd/penstock/internal/config"
	"github.com/penstock/penstock/cmd/penstock/internal/confine"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/cmd/penstock/internal/upstream"
)

// Files that a configuration names: certificates and keys.

// fileRules returns rules and those about files. confined reports that this process has given up to read some files that a configuration names:
// what is wrong with those is left to apply, which refuses the configuration or has another process take over. nil: it has not.
func fileRules(confined func(*spec.Config) bool) []config.Rule {
	return append(slices.Clip(rules), config.Rule{All: func(c *spec.Config, p *config.Report) {
		checkFiles(c, p, confined != nil && confined(c))
	}})
}

// checkFiles reports what is wrong with certificates and keys.
func checkFiles(c *spec.Config, p *config.Report, confined bool) {
	o := certs.Options{Ask: p.Open}
	for _, l := range c.Listeners {
		if l.TLS != nil {
			checkServerTLS(l, o, p, confined)
		}
	}
	for _, g := range c.Groups {
		if g.TLS != nil {
			checkClientTLS(g.TLS, o, p, confined, &g.TLS, g)
		}
		if t := g.CheckTLS(); t != nil && t != g.TLS {
			checkClientTLS(t, o, p, confined, &g.Check.TLS, g)
		}
	}
}

func checkClientTLS(t *spec.ClientTLS, o certs.Options, p *config.Report, confined bool, above ...any) {
	certs.CheckClient(t, o, func(field *string, problem certs.Problem) {
		at := append([]any{field, t}, above...)
		switch {
		case problem.Warning:
			p.Warn(errors.New(problem.Message()), at...)
		case !confined || !errors.Is(problem.Err, fs.ErrPermission):
			p.Fail(errors.New(problem.Message()), at...)
		}
	})
}

// lacksFiles reports whether this process has given up to read something that a configuration names.
func (d *daemon) lacksFiles(cfg *spec.Config) bool {
	c := d.confined
	if c == nil || c.held.Load() == nil {
		return false
	}
	return len(c.held.Load().Missing(c.needs(cfg), func(n confine.Need) bool { return n.Kind != confine.Read })) > 0
}

// tellFiles logs what is wrong with certificates and keys of TLS towards members.
func (d *daemon) tellFiles(problems certs.Problems) {
	for _, p := range problems {
		level, message := slog.LevelError, "file of TLS towards members cannot be used"
		if p.Warning {
			level, message = slog.LevelWarn, "certificate of TLS towards members"
		}
		d.log.Log(context.Background(), level, message, "file", p.File, "line", p.Line, "error", p.Text)
		d.event(level, "certificate", p.File, p.Text)
	}
}

// certificateExpires logs that a member's certificate has expired or soon will.
func (d *daemon) certificateExpires(e upstream.CertificateEvent) {
	at := e.Expires.UTC().Format("2006-01-02 15:04 MST")
	text := "the certificate expires on " + at
	if e.Left < 0 {
		text = "the certificate has expired, on " + at
	}
	d.log.Warn("certificate of a member", "group", e.Group, "member", e.Member, "expires", e.Expires.UTC(), "error", text)
	d.event(slog.LevelWarn, "certificate", e.Group+"/"+e.Member, text)
}
