package convert

import (
	"net/netip"
	"strings"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// Account is a user with a group.
type Account struct {
	Place                 // the last line that names something beside user
	User, Group, UID, GID string
}

// SetUser makes the process that relays become the user that the original becomes.
func (p *Plan) SetUser(a Account) {
	user := a.User
	if user == "" && a.UID != "" && a.GID != "" {
		user = a.UID + ":" + a.GID
	}
	switch group := a.Group + a.GID; {
	case user != "":
		p.Top.Sub("sandbox", "user", user)
		p.Top.Set("sandbox", p.Top.Get("sandbox"), "The user must exist on this host. Where the service manager has set one (User= or DynamicUser= of systemd), that one counts.")
		if a.User != "" && group != "" && group != user {
			p.Note(a.Place, "group %s: no counterpart; sandbox: {user: %s} has that user's own groups, {user: UID:GID} names both", group, user)
		}
	case a.UID+group != "":
		p.Note(a.Place, "uid %s and group %s: no counterpart; sandbox: {user: NAME}, or {user: UID:GID}, needs both", Quote(a.UID), Quote(group))
	}
}

var UserRE = LazyRE(`^[a-z_][a-z0-9_-]{0,31}$`)

// LogTargetOK reports whether access-log's key to takes it.
func LogTargetOK(to string) bool {
	url, ok := strings.CutPrefix(to, "syslog:")
	if !ok {
		return to == "stdout" || to == "stderr" || strings.HasPrefix(to, "/") && !strings.HasSuffix(to, "/") && OneLine(to) == to
	}
	if !strings.HasPrefix(url, "unix:") && !strings.HasPrefix(url, "tcp://") {
		url = "udp://" + url
	}
	_, err := spec.ParseUpstream(url)
	return err == nil && OneLine(to) == to
}

// SetSource sets where a group connects from.
func (p *Plan) SetSource(at Place, f *Fields, source string) {
	switch source {
	case "", "0.0.0.0", "*", ":":
		return
	case "client":
		f.Set("source", Raw("client"))
		return
	}
	host := source
	if i := strings.LastIndexByte(source, ':'); i >= 0 && (strings.Count(source, ":") == 1 || strings.HasPrefix(source, "[")) {
		host = source[:i]
		if source[i+1:] != "0" {
			p.Note(at, "source %s: ports are the kernel's choice", source)
		}
	}
	a, err := netip.ParseAddr(strings.Trim(host, "[]"))
	if err != nil || a.Zone() != "" {
		p.Note(at, "source %s: not an address", Quote(source))
		return
	}
	if !a.IsUnspecified() {
		f.Set("source", a.Unmap().String())
	}
}
