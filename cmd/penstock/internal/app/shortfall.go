package app

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/config"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// A worker after a crash has the flows of the one before, and no one else can serve them: so nothing that it cannot have keeps it from
// starting. It may not have it because it is in the sandbox of the one before, or because the host has changed since. It says what it
// goes on without, and asks for another worker, which begins with privileges:
//
//	the saved configuration ──fails──▶ the one before, if privileges were missing ──fails──▶ without what fails ──makeGood──▶ another worker
//
// What a worker makes new, and why that cannot end it:
//
//	its sandbox                      policy and paths are those of the keeper; a path that is gone is left out (sandbox.Report)
//	sockets of listeners             are held; further ones, for more loops, are shared if they are refused (relay.Listener.Degraded)
//	listeners that were not held     are left out, and closed until another worker
//	their addresses                  a name has the address that it had (keeping.Link.AddressesBefore); a free port, too
//	permissions of paths, options    a refusal leaves them as they are
//	the admin listener               is held; without it flows go on
//	certificates of listeners        those that can be read; handshakes that need others fail until they can be
//	TLS to members                   handshakes fail, with a reason, until the files can be read
//	the access log                   a file is tried again, by the keeper if need be; records are dropped and counted until then
//	syslog, registries, DNS          connect and reconnect by themselves; registries begin with what is saved
//	documents, counters              are held; new ones that cannot be held end with this worker
//	event loops, their ledgers       need no privileges; those that flows need are enough (relay.Config.Loops)
type shortfall struct {
	accepted bool     // whatever fails is left out
	lacks    []string // what another worker may have; guarded by daemon.mu
}

// goWithout returns err, unless this worker goes on without what has failed.
func (d *daemon) goWithout(err error) error {
	if err == nil || !d.shortfall.accepted {
		return err
	}
	d.noteLack(err)
	return nil
}

// noteLack notes and tells what this worker goes on without, and another one may have.
func (d *daemon) noteLack(err error) {
	d.shortfall.lacks = append(d.shortfall.lacks, d.tellLack(err))
}

// tellLack tells what this worker goes on without.
func (d *daemon) tellLack(err error) (text string) {
	text = strings.ReplaceAll(err.Error(), "\n", "; ")
	d.log.Error("this worker goes on without what it cannot have", "error", text)
	d.log.event(slog.LevelError, "worker", "daemon", "this worker goes on without what it cannot have: "+text)
	return text
}

// applyWithout applies the first configuration without what fails.
func (d *daemon) applyWithout(ctx context.Context, cfg *spec.Config, why error) error {
	d.log.Error("the configuration cannot be applied as a whole", "error", why)
	d.shortfall.accepted = true
	defer func() { d.shortfall.accepted = false }()
	return d.apply(ctx, cfg)
}

// The pause until another worker is asked for, which grows with each that could not take over. A worker that dies again soon asks for none.
const (
	makeGoodAfter = 2 * time.Second
	makeGoodMost  = 10 * time.Minute
)

// makeGood asks for another worker, which has what this one lacks, until one takes over or the daemon closes. It would read the configuration's files, which nobody may
// have asked for: so they must be as they were.
func (d *daemon) makeGood(by, lacks string) {
	told := ""
	for wait := makeGoodAfter; ; {
		select {
		case <-time.After(wait):
		case <-d.background.closing:
			return
		case <-d.keeping.Lost():
			return
		}
		if why := d.notAsLoaded(); why != "" {
			if why != told {
				d.log.Warn("no other worker yet, which would have what this one goes on without", "why", why)
			}
			told = why
			continue
		}
		before, err := d.replaceFor(by, errors.New(lacks))
		if err != nil {
			return // the keeper is gone
		}
		u, ok := d.awaitEnd(before)
		if !ok {
			return
		}
		d.log.Error("no other worker, which would have what this one goes on without", "why", u.Reason)
		wait = min(4*wait, makeGoodMost)
	}
}

// notAsLoaded says why another worker would not have the running configuration; empty: it would.
func (d *daemon) notAsLoaded() string {
	if d.reloads.load == nil {
		return ""
	}
	d.reloads.order.Lock()
	defer d.reloads.order.Unlock()
	cfg, _, err := d.reloads.load()
	switch {
	case err != nil:
		return config.Message(err)
	case !bytes.Equal(cfg.Text, d.active.Load().Text):
		return cfg.Source + " has changed; penstock reload applies it"
	}
	return ""
}
