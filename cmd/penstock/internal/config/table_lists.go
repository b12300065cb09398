package config

import (
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// webURL is what is asked by HTTP, with a path.
var webURL = texts("URL", "an http or https URL", `^https?://[^\s\x00-\x1f\x7f]+$`, func(s string) (string, *fault) {
	if u, err := url.Parse(s); err != nil || u.Hostname() == "" || u.User != nil || u.Fragment != "" {
		return "", &fault{problem: "invalid URL " + quote(s), allowed: "a URL such as https://www.example.org/path, without a password; token-file for that"}
	}
	return s, nil
})

// linesType says what the lines of a list look like.
var linesType = texts("lines", "words with one space between them, of which one is *, such as deny *", `^([^\s#;*]+ )*\*( [^\s#;*]+)*$`, func(s string) (string, *fault) {
	if s == "*" {
		return "", nil
	}
	return s, nil
})

var listKeys = keysOf("list",
	field("file", filePath, "", "File with one address or network per line. What follows # or ; is a comment.", func(l *spec.List) *string { return &l.File }),
	field("url", webURL, "", "The same by HTTP. Redirects are not followed.", func(l *spec.List) *string { return &l.URL }),
	field("etcd", texts("prefix", "a prefix that begins with /", `^/[^\x00-\x1f\x7f]+$`, keepText), "", "A prefix of keys in etcd; the value of each is written as such a file.", func(l *spec.List) *string { return &l.Etcd }),
	field("crowdsec", serverURL, "", "The local API of CrowdSec, of which this is a bouncer: the list has the addresses and ranges of its decisions to ban. token-file has the key of the bouncer.", func(l *spec.List) *string { return &l.CrowdSec }),
	field("registry", nameType, "", "With etcd: which of registries to use. Default: the only etcd.", func(l *spec.List) *string { return &l.Registry.Name }),
	field("token-file", filePath, "", "With url: file with the token that is sent with each request. With crowdsec: file with the key of the bouncer.", func(l *spec.List) *string { return &l.KeyFile }),
	field("ca", filePath, "", "With https: file with the certificates that the server's must be signed by. Default: the system's.", func(l *spec.List) *string { return &l.CA }),
	field("lines", linesType, "", "What the words of each line are, of which * is the network, up to a ; or the end: deny * for files of nginx' deny. A line with other words, or with something behind the ;, is wrong. Default: *, the network alone.", func(l *spec.List) *string { return &l.Lines }),
	field("every", duration(time.Second, ""), "", "Time from one look for changes to the next. Default: 2s for files, 10s for crowdsec, 5m for others.", func(l *spec.List) *time.Duration { return &l.Every }),
).oneOf("file", "url", "etcd", "crowdsec")

// lists completes the lists of a file.
func (r *reader) lists(f *file) {
	for _, l := range f.Lists {
		listKeys.fill(r, l, nil)
		d := spec.Discover{Registry: l.Registry, Key: l.Etcd}
		if l.Etcd != "" {
			d.Registry.Kind = "etcd"
			r.findRegistryAt(f, &d, r.position(&l.Registry.Name, &l.Etcd, l))
			l.Registry = d.Registry
		} else if r.isSet(&l.Registry.Name) {
			r.fail(r.position(&l.Registry.Name), fault{problem: "has no effect without etcd", allowed: "registry together with etcd"})
		}
		secure := strings.HasPrefix(l.URL+l.CrowdSec, "https://")
		switch {
		case r.isSet(&l.CA) && !secure:
			r.fail(r.position(&l.CA), fault{problem: "has no effect without TLS", allowed: "ca together with https://"})
		case r.isSet(&l.KeyFile) && l.URL+l.CrowdSec == "" && l.File+l.Etcd != "":
			r.fail(r.position(&l.KeyFile), fault{problem: "has no effect here", allowed: "token-file together with url or crowdsec"})
		case r.isSet(&l.Lines) && l.CrowdSec != "":
			r.fail(r.position(&l.Lines), fault{problem: "has no effect here", allowed: "lines together with file, url or etcd"})
		case l.CrowdSec != "" && !r.isSet(&l.KeyFile):
			r.fail(r.position(&l.CrowdSec), fault{problem: "the key token-file is missing", allowed: "the key that cscli bouncers add shows, in a file"})
		}
	}
}

// checkLists reports lists that are not there, and those that nothing uses.
func (r *reader) checkLists(f *file) {
	var names []string
	used := map[string]bool{}
	for _, l := range f.Lists {
		names = append(names, l.Name)
		used[l.Name] = false
	}
	check := func(all *[]spec.Network) {
		for i := range *all {
			name := (*all)[i].List
			if _, ok := used[name]; ok || name == "" {
				used[name] = true
				continue
			}
			bad := fault{problem: "there is no list " + plain(name), near: suggest(name, names), allowed: firstNames(names)}
			if len(names) == 0 {
				bad.allowed = "the name of one in lists"
			}
			r.fail(r.position(&(*all)[i], all), bad)
		}
	}
	for _, l := range f.listeners {
		check(&l.Allow)
		check(&l.Deny)
		check(&l.ProxyFrom)
		for _, route := range l.Routes {
			check(&route.From)
		}
	}
	for _, l := range f.Lists {
		if !used[l.Name] {
			r.warn(r.position(l), fault{problem: fmt.Sprintf("unused: nothing refers to list:%s", l.Name)})
		}
	}
}
