package remote

import "github.com/penstock/penstock/cmd/penstock/internal/spec"

// Of returns the Config of a registry.
func Of(r spec.Registry) Config {
	return Config{
		Servers: r.ServerList(), CA: r.CA, Cert: r.Cert, Key: r.Key, ServerName: r.ServerName,
		TokenFile: r.TokenFile, UserFile: r.UserFile,
	}
}
