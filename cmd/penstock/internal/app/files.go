package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"

	"github.com/penstock/penstock/cmd/penstock/internal/certs"
	"github.com/penstock/penstock/cmd/penstock/internal/sandboxneeds"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/cmd/penstock/internal/upstream"
)

// What a configuration names on this host: certificates, keys, logs, its own addresses.

// gaveUp reports whether this process is in its sandbox, so that another one may be able to read what it cannot.
func (d *daemon) gaveUp() bool { return d.sandboxed.Held() != nil }

// checkClientFiles returns an error if this process may not read what TLS towards members names, after it gave that up.
func (d *daemon) checkClientFiles(cfg *spec.Config) (err error) {
	if !d.gaveUp() {
		return nil
	}
	for _, t := range cfg.ClientTLS() {
		certs.CheckClient(t, d.certificateOptions(), func(_ *string, problem certs.Problem) {
			if err == nil && errors.Is(problem.Err, fs.ErrPermission) {
				err = fmt.Errorf("TLS towards members: %w", d.explainProblems(certs.Problems{problem}))
			}
		})
	}
	return err
}

// explainProblems returns problems, and says of those that are the sandbox's that they are.
func (d *daemon) explainProblems(problems certs.Problems) certs.Problems {
	for i := range problems {
		var refused *sandboxneeds.RefusedError
		if errors.As(d.sandboxed.Explain(problems[i].Err), &refused) {
			problems[i].Text += refused.Why()
		}
	}
	return problems
}

// tellFiles logs what is wrong with certificates and keys of TLS towards members.
func (d *daemon) tellFiles(problems certs.Problems) {
	for _, p := range d.explainProblems(problems) {
		level, message := slog.LevelError, "file of TLS towards members cannot be used"
		if p.Warning {
			level, message = slog.LevelWarn, "certificate of TLS towards members"
		}
		d.log.Log(context.Background(), level, message, "file", p.File, "line", p.Line, "error", p.Text)
		d.log.event(level, "certificate", p.File, p.Text)
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
	d.log.event(slog.LevelWarn, "certificate", e.Group+"/"+e.Member, text)
}
