package sources

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/cmd/penstock/internal/config"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// A remoteClient follows one text of a configuration in a registry.
type remoteClient interface {
	// follow calls deliver with each version that this relay is to run, until ctx ends. An error instead says
	// that the registry does not answer, or has nothing that can be used; the next version, which may be the
	// same again, says that it does. deliver returns at once.
	follow(ctx context.Context, deliver func(spec.Layer, error))
	// applied is called when a version runs, refused when it cannot, and the one before goes on. Both return at
	// once. The same version may be refused or applied again, when something else has changed.
	applied(version string)
	refused(version string, why error)
}

// newRemoteClient returns the client of a registry. last is the version that ran last, as the disk or the worker
// before has it; without a version, none is known.
func newRemoteClient(r spec.Registry, key string, node spec.Node, last spec.Layer, program string) (remoteClient, error) {
	switch r.Kind {
	case "etcd":
		return newEtcdConfig(r, key, node, last)
	case "xds":
		return &xdsText{registry: r, name: key, node: node, program: program}, nil
	}
	return nil, fmt.Errorf("this version cannot read configurations from %s", r.Kind)
}

// A remoteLayer is a text of the configuration that is kept in a registry, on its way to run:
//
//	latest, as the registry has it ──take──▶ taken, which Source.Load reads ──settle──▶ good, which runs
//	                                           └──settle, with an error──▶ refused
type remoteLayer struct {
	path    string
	client  remoteClient
	file    *goodFile // nil: nothing is kept on disk
	last    lastGood  // at the start
	damaged error     // what was wrong with the file then

	mu       sync.Mutex
	latest   spec.Layer // without a version: the registry has not answered yet
	taken    spec.Layer
	good     spec.Layer
	saved    string     // where good is from, if the registry has not answered; empty: from the registry
	bad      spec.Layer // was refused
	again    bool       // the registry has gone back to good, so that a reload ends well
	back     bool       // taken was good again
	promoted bool       // good was a trial, and is not any more
	why      *api.RefusedVersion
	failed   error // why the registry does not answer; nil: it does
	since    time.Time
	answered bool   // since the start
	told     string // of failed, what is in the log
}

// lastGood is a version that has run before.
type lastGood struct {
	spec.Layer
	from string // where it is from; empty: there is none
	// stranger says that it is of the same key, but of none of these servers: of the same cluster at other addresses, or of
	// another one, whose numbers of versions mean nothing here.
	stranger bool
}

// sameText reports whether two layers are the same version.
func sameText(a, b *spec.Layer) bool {
	return a.Version == b.Version && string(a.Text) == string(b.Text)
}

// deliver is what the client calls.
func (r *remoteLayer) deliver(next spec.Layer, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		if r.failed == nil {
			r.since = time.Now()
		}
		r.failed = err
		return
	}
	r.failed, r.since, r.answered = nil, time.Time{}, true
	next.Path = r.path
	r.latest = next
	if sameText(&next, &r.good) {
		r.promoted = r.promoted || r.good.Trial && !next.Trial
		r.good, r.saved = next, ""
		r.again = r.again || r.bad.Version != ""
		r.bad, r.why = spec.Layer{}, nil
		if !r.again {
			r.client.applied(next.Version) // it runs already
		}
	}
}

// pending reports whether there is a version that does not run and was not refused.
func (r *remoteLayer) pending() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.latest.Version != "" && (r.again || !sameText(&r.latest, &r.good) && !sameText(&r.latest, &r.bad))
}

// take has Source.Load read the latest version.
func (r *remoteLayer) take() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.latest.Version != "" {
		r.taken, r.back, r.again = r.latest, r.again, false
	}
}

// keep returns the version to write to disk after its trial ended well; without a version, there is none.
func (r *remoteLayer) keep() (write spec.Layer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.promoted {
		r.promoted = false
		write = r.good
	}
	return write
}

// text is Source.Remote.
func (r *remoteLayer) text() (spec.Layer, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.taken.Version == "" {
		return spec.Layer{}, errors.New("there is no version yet")
	}
	return r.taken, nil
}

// useUnconfirmed takes a version that the registry has not confirmed.
func (r *remoteLayer) useUnconfirmed(last lastGood) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.taken, r.saved = last.Layer, last.from
	r.taken.Path = r.path
}

// settle says what has become of the version that was taken. It returns what should be written to disk;
// without a version: nothing.
func (r *remoteLayer) settle(err error) (write spec.Layer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer func() { r.back = false }()
	switch {
	case err == nil:
		if !sameText(&r.taken, &r.good) {
			if sameText(&r.taken, &r.latest) { // otherwise it is from the disk, and the registry has not answered
				r.saved = ""
				if !r.latest.Trial {
					write = r.taken
				}
			}
			r.good = r.taken
		}
		if sameText(&r.good, &r.latest) {
			r.bad, r.why = spec.Layer{}, nil
			r.client.applied(r.good.Version)
		}
	case sameText(&r.taken, &r.good): // something else is wrong
		if r.back && sameText(&r.good, &r.latest) {
			r.client.applied(r.good.Version) // it goes on, whatever that is
		}
	default:
		r.bad = r.taken
		r.why = &api.RefusedVersion{Version: r.taken.Version, Error: config.OneLine(err), Time: time.Now()}
		r.client.refused(r.taken.Version, err)
		if r.good.Version != "" {
			r.taken = r.good
		}
	}
	return write
}

// status returns the state of the layer for the API.
func (r *remoteLayer) status() api.RemoteConfig {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := api.RemoteConfig{Source: spec.RemoteName(r.path), Version: r.good.Version, Published: r.good.At, Trial: r.good.Trial, Saved: r.saved, Refused: r.why}
	if r.failed != nil {
		s.Error, s.Since = config.OneLine(r.failed), r.since
	}
	return s
}
