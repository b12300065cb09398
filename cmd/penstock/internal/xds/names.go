package xds

import (
	"fmt"
	"hash/fnv"
	"strings"
)

// nameOf returns a name of a configuration for one of the control plane's. It depends on nothing else, so
// that a listener or group is recognized after any change of others. A name that has to be altered gets a
// hash of what it was.
func nameOf(s string) string {
	const most = 63
	name := strings.Map(func(c rune) rune {
		switch {
		case c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '.' || c == '-':
			return c
		}
		return '-'
	}, s)
	name = strings.TrimLeft(name, ".-")
	if name == s && len(s) <= most && s != "" {
		return s
	}
	h := fnv.New32a()
	h.Write([]byte(s))
	return fmt.Sprintf("%.52s-%08x", "x"[:max(0, 1-len(name))]+name, h.Sum32())
}
