// Package rules is what is checked of a configuration beyond its grammar: the formats that other packages read, what it names
// on this host, and members that lead back to their listener.
package rules

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/account"
	"github.com/penstock/penstock/cmd/penstock/internal/certs"
	"github.com/penstock/penstock/cmd/penstock/internal/config"
	"github.com/penstock/penstock/cmd/penstock/internal/cycle"
	"github.com/penstock/penstock/cmd/penstock/internal/lists"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// Everywhere are the checks whose answer is the same on every host. Package account makes them.
var Everywhere = []config.Rule{
	{Of: func(c *spec.Config) *string { return &c.AccessLog.Format }, Check: account.CheckFormat},
	{Of: func(c *spec.Config) *string { return &c.AccessLog.To }, Check: account.CheckTarget},
}

// OnHost returns Everywhere and what depends on this host. sandboxed is whether this process is in its sandbox: what it may not read is left to apply
// then, which refuses the configuration or hands over to another process.
func OnHost(sandboxed bool) []config.Rule {
	return append(slices.Clip(Everywhere), config.Rule{All: func(c *spec.Config, p *config.Report) {
		reportCycles(c, p)
		checkLog(c, p)
		checkFiles(c, p, sandboxed)
	}})
}

// checkLog reports an access log that cannot be opened.
func checkLog(c *spec.Config, p *config.Report) {
	to := c.AccessLog.To
	if !strings.HasPrefix(to, "/") {
		return
	}
	if info, err := os.Stat(to); err == nil && info.IsDir() {
		p.Fail(fmt.Errorf("%s is a folder; allowed: a file in it, such as %s", to, filepath.Join(to, "access.log")), &c.AccessLog.To)
	} else if _, err := os.Stat(filepath.Dir(to)); errors.Is(err, fs.ErrNotExist) {
		p.Warn(fmt.Errorf("the folder %s does not exist: the log could not be opened now", filepath.Dir(to)), &c.AccessLog.To)
	}
}

// checkFiles reports what is wrong with certificates and keys.
func checkFiles(c *spec.Config, p *config.Report, sandboxed bool) {
	o := certs.Options{Ask: p.Open}
	if !sandboxed {
		checkKernelTLS(c, p)
	}
	for _, l := range c.Listeners {
		if l.TLS != nil {
			checkServerTLS(l, o, p, sandboxed)
		}
	}
	for _, s := range c.Lists {
		if s.File != "" {
			checkList(s, p, sandboxed)
		}
	}
	for _, g := range c.Groups {
		if g.TLS != nil {
			checkClientTLS(g.TLS, o, p, sandboxed, &g.TLS, g)
		}
		if t := g.CheckTLS(); t != nil && t != g.TLS {
			checkClientTLS(t, o, p, sandboxed, &g.Check.TLS, g)
		}
	}
}

// checkList reports a list that cannot be read, and lines of it that are not networks.
func checkList(s *spec.List, p *config.Report, sandboxed bool) {
	l := lists.NewTable([]*spec.List{s}, nil, nil).Named(s.Name)
	err := l.Load(context.Background(), time.Now(), lists.Host{Open: p.Open})
	switch r := l.Status().Report; {
	case err != nil && (!sandboxed || !errors.Is(err, fs.ErrPermission)):
		p.Fail(err, &s.File, s)
	case r.Bad > 0:
		p.Warn(fmt.Errorf("%s: %s left out: %s", s.File, config.Counted(r.Bad, "line"), strings.Join(r.Named, "; ")), &s.File, s)
	}
}

func checkClientTLS(t *spec.ClientTLS, o certs.Options, p *config.Report, sandboxed bool, above ...any) {
	certs.CheckClient(t, o, func(field *string, problem certs.Problem) {
		at := append([]any{field, t}, above...)
		switch {
		case problem.Warning:
			p.Warn(errors.New(problem.Message()), at...)
		case !sandboxed || !errors.Is(problem.Err, fs.ErrPermission):
			p.Fail(errors.New(problem.Message()), at...)
		}
	})
}

// reportCycles is cycle.Check with the place of what leads back.
func reportCycles(c *spec.Config, p *config.Report) {
	cycle.NewListeners(c.Listeners, cycle.ConfiguredAddrs).Each(c.Listeners, func(h cycle.Hop, steps []string) {
		for _, l := range c.Listeners {
			if l.Name != h.Listener {
				continue
			}
			for _, r := range l.AllRoutes() {
				for g := range r.Groups() {
					if slices.ContainsFunc(cycle.LiteralMembers(g), func(a cycle.Member) bool { return a.Addr == h.Member }) {
						p.Fail(cycle.HopError(h, steps), &r.To, &l.To, l)
						return
					}
				}
			}
		}
	})
}
