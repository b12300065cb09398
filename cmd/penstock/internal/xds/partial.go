package xds

import (
	"errors"
	"maps"
	"strings"

	"github.com/penstock/penstock/cmd/penstock/internal/ads"
	"github.com/penstock/penstock/cmd/penstock/internal/config"
)

// Per resource, instead of as a whole: a Listener or Cluster that cannot be applied stays as it last was, or is left
// out if it never was, and the others are applied.

// maxPasses bounds how often a set of resources is assembled anew without those that are wrong: a Cluster that
// is left out can make Listeners wrong, and package config finds more after the assembly.
const maxPasses = 8

// A resourceSet has the Listeners and Clusters that a text is made of, by type.
type resourceSet map[string]map[string]ads.Resource

func (s resourceSet) clone() resourceSet {
	out := make(resourceSet, len(s))
	for url, byName := range s {
		out[url] = maps.Clone(byName)
	}
	return out
}

// makePartly assembles what can be. errs are of the resources that were replaced by their last good ones, or left out.
func (f *Configuration) makePartly(resources resourceSet, late bool) (a *assembly, used resourceSet, errs assembleErrors, err error) {
	used = resources.clone()
	for range maxPasses {
		a, err = assemble(f.registry, used[listenerURL], used[clusterURL])
		var wrong assembleErrors
		switch {
		case err != nil:
			if !errors.As(err, &wrong) {
				return nil, nil, nil, err
			}
		case len(a.open) > 0 && late:
			wrong = openErrors(a.open)
		case len(a.open) > 0:
			return a, used, errs, nil
		default:
			_, failed := config.Parse("text", a.text.YAML)
			if wrong = a.text.blame(failed); len(wrong) == 0 {
				return a, used, errs, failed
			}
		}
		changed := false
		for _, w := range wrong {
			if f.replace(used, w.URL, w.Name) {
				changed = true
				errs = append(errs, w)
			}
		}
		if !changed {
			return nil, nil, nil, wrong
		}
	}
	return nil, nil, nil, errs
}

// replace replaces a resource by the last good one, or leaves it out. It reports whether that is a change.
func (f *Configuration) replace(used resourceSet, url, name string) bool {
	now, ok := used[url][name]
	if !ok {
		return false
	}
	if good, ok := f.good[url][name]; ok && string(good.Value) != string(now.Value) {
		used[url][name] = good
	} else {
		delete(used[url], name)
	}
	return true
}

// blame returns the errors of package config by resource; nothing if there is one of no resource.
func (t *Text) blame(err error) (list assembleErrors) {
	var errs config.Errors
	if !errors.As(err, &errs) {
		return nil
	}
	for _, e := range errs {
		if e.Line < 1 || e.Line > len(t.places) || t.places[e.Line-1].resource == "" {
			return nil
		}
		p := t.places[e.Line-1]
		kind, name, _ := strings.Cut(p.resource, " ")
		url := listenerURL
		if kind == kindOf(clusterURL) {
			url = clusterURL
		}
		list = append(list, resourceError{url, name, []Problem{{p.path, e.Message()}}})
	}
	return list
}

func openErrors(open []openReference) (errs assembleErrors) {
	for _, o := range open {
		errs = append(errs, resourceError{listenerURL, o.from, []Problem{{o.path, "there is no Cluster " + ads.OneLine(o.to)}}})
	}
	return errs
}

// of returns the errors of a type.
func (e assembleErrors) of(url string) error {
	var own assembleErrors
	for _, r := range e {
		if r.URL == url {
			own = append(own, r)
		}
	}
	if own == nil {
		return nil
	}
	return own
}
