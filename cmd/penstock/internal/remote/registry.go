package remote

import (
	"context"
	"net"
	"strings"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// Of returns the Config of a registry.
func Of(r spec.Registry) Config {
	c := Config{
		Servers: r.ServerList(), CA: r.CA, Cert: r.Cert, Key: r.Key, ServerName: r.ServerName,
		TokenFile: r.TokenFile, UserFile: r.UserFile,
	}
	if path, ok := strings.CutPrefix(r.Servers, "unix:"); ok {
		c.Servers = []string{"http://localhost"} // what a request says where none of it matters
		c.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}
	}
	return c
}
