package convert

import (
	"slices"
	"strings"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// Protocols reads the protocols of an alpn option.
func Protocols(s string) (list []string) {
	for name := range strings.SplitSeq(s, ",") {
		if name != "" && len(name) <= 255 && OneLine(name) == name {
			list = append(list, name)
		}
	}
	return list
}

// AddOnce adds a certificate that is not there already.
func AddOnce(list []Fields, c Fields) []Fields {
	if slices.ContainsFunc(list, func(o Fields) bool { return o[0].Value == c[0].Value }) {
		return list
	}
	return append(list, c)
}

// HostOK reports whether a text can be the server name of a certificate.
func HostOK(s string) bool {
	in := s
	if strings.Contains(s, ":") {
		in = "[" + s + "]"
	}
	e, err := spec.ParseUpstream("tcp://" + in + ":1")
	return err == nil && e.Host == s
}

// Hostless returns a member of a group that has no host of its own, so that only a server name tells whose certificate it
// must have: a Unix socket, or what DNS says of a service. Empty: there is none.
func Hostless(group Fields) string {
	discover, _ := group.Get("discover").([]Fields)
	for _, d := range discover {
		if service, ok := d.Get("srv").(string); ok {
			return service
		}
	}
	for _, url := range urlsOf(group) {
		if strings.HasPrefix(url, "unix:") {
			return url
		}
	}
	return ""
}

// urlsOf returns where the members of a group are.
func urlsOf(group Fields) (urls []string) {
	switch members := group.Get("members").(type) {
	case []string:
		urls = members
	case []Fields:
		for _, m := range members {
			if url, ok := m.Get("to").(string); ok {
				urls = append(urls, url)
			}
		}
	}
	return urls
}
