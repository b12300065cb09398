package rules

import (
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/penstock/penstock/cmd/penstock/internal/certs"
	"github.com/penstock/penstock/cmd/penstock/internal/config"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// checkServerTLS reports what is wrong with the certificates of a listener. What this process may not read, because it has given that up, is
// left to apply, after which another process may take over.
func checkServerTLS(l *spec.Listener, o certs.Options, p *config.Report, sandboxed bool) {
	_, problems := certs.Open(l.TLS, o, nil)
	for _, problem := range problems {
		switch {
		case problem.Warning:
			p.Warn(errors.New(problem.Message()), fieldOf(l, problem.File)...)
		case !sandboxed || !errors.Is(problem.Err, fs.ErrPermission):
			p.Fail(errors.New(problem.Message()), fieldOf(l, problem.File)...)
		}
	}
}

// fieldOf returns where a listener's tls names a file, or a folder that has it.
func fieldOf(l *spec.Listener, file string) []any {
	t := l.TLS
	for i := range t.Certificates {
		c := &t.Certificates[i]
		for _, f := range []*string{&c.Chain, &c.Key, &c.OCSP} {
			if *f == file && file != "" {
				return []any{f, c, &l.TLS, l}
			}
		}
	}
	for i := range t.Certificates {
		if c := &t.Certificates[i]; c.Folder != "" && (c.Folder == file || inFolder(file, c.Folder)) {
			return []any{&c.Folder, c, &l.TLS, l}
		}
	}
	if c := t.Clients; c != nil {
		for _, f := range []*string{&c.CA, &c.CRL} {
			if *f == file {
				return []any{f, &t.Clients, &l.TLS, l}
			}
		}
	}
	return []any{&t.Tickets, &l.TLS, l}
}

// inFolder reports whether a file is in a folder.
func inFolder(file, folder string) bool { return filepath.Dir(file) == filepath.Clean(folder) }
