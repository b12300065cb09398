package app

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/cmd/penstock/internal/certs"
	"github.com/penstock/penstock/cmd/penstock/internal/earlykeeper"
	"github.com/penstock/penstock/cmd/penstock/internal/hooks"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// Certificates of listeners.

// certificateOptions say how certificates are read.
func (d *daemon) certificateOptions() certs.Options {
	return certs.Options{Ask: d.keeping.Asker(earlykeeper.Read), KernelTLS: d.kernelTLS.check}
}

// openCertificates reads the certificates of a configuration's listeners, by name. Warnings were told when the configuration was read.
func (d *daemon) openCertificates(cfg *spec.Config) (map[string]*certs.Server, error) {
	servers := map[string]*certs.Server{}
	old := d.active.Load()
	for _, l := range cfg.Listeners {
		if l.TLS == nil {
			continue
		}
		var before *certs.Server
		if plan := old.planOf(l); plan != nil {
			before = plan.Certs
		}
		o := d.certificateOptions()
		o.Incomplete = d.shortfall.accepted
		s, problems := certs.Open(l.TLS, o, before)
		if errs := problems.Errors(); s == nil {
			return nil, fmt.Errorf("listeners.%s.tls: %w", l.Name, d.explainProblems(problems))
		} else if len(errs) > 0 { // it reads them again, by itself
			d.tellLack(fmt.Errorf("listeners.%s.tls: %w", l.Name, d.explainProblems(errs)))
		}
		servers[l.Name] = s
	}
	for _, t := range cfg.ClientTLS() {
		if t.Kernel { // as long as this process may load the module
			d.kernelTLS.check()
		}
	}
	return servers, nil
}

// lookAtCertificates reads certificates again that have changed, until the daemon closes.
func (d *daemon) lookAtCertificates() {
	tick := time.NewTicker(lookInterval)
	defer tick.Stop()
	for {
		select {
		case <-d.background.closing:
			return
		case <-tick.C:
		}
		d.clients.Look()
		for name, plan := range d.active.Load().plans {
			if plan.Certs != nil {
				d.tellCertificates(name, plan.Certs.Refresh())
			}
		}
	}
}

// tellCertificates logs what a look at the files of a listener's certificates has found.
func (d *daemon) tellCertificates(listener string, c certs.Change) {
	for _, file := range c.Loaded {
		d.log.Info("certificates loaded", "listener", listener, "file", file)
		d.log.event(slog.LevelInfo, "certificate", listener, file+" was loaded")
	}
	for _, p := range d.explainProblems(c.Problems) {
		level, message := slog.LevelError, "a changed file cannot be used; what was read before stays"
		if p.Warning {
			level, message = slog.LevelWarn, "certificates"
		}
		d.log.Log(context.Background(), level, message, "listener", listener, "file", p.File, "line", p.Line, "error", p.Text)
		d.log.event(level, "certificate", listener, p.Message())
	}
}

// certificatesOf returns the certificates of a listener, for the API.
func certificatesOf(p *hooks.Plan) (list []api.Certificate, failing []string, failures int64) {
	if p == nil || p.Certs == nil {
		return nil, nil, 0
	}
	for _, c := range p.Certs.Certificates() {
		list = append(list, api.Certificate{File: c.File, Names: c.Names, Key: c.Key, Issuer: c.Issuer, Serial: c.Serial, NotBefore: c.NotBefore, Expires: c.NotAfter, Stapled: c.Stapled, StapleExpires: c.StapleUntil})
	}
	return list, p.Certs.Failing(), p.Certs.Failures()
}
