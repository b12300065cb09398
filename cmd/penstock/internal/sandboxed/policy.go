package sandboxed

import (
	"encoding/json"
	"path/filepath"
	"slices"

	"github.com/penstock/penstock/cmd/penstock/internal/earlykeeper"
	"github.com/penstock/penstock/cmd/penstock/internal/sandboxneeds"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/sandbox"
)

// maxAsked bounds the files that the keeper may be asked for.
const maxAsked = 512

// policyOf returns what the keeper is to know of a process in a sandbox. files and folders are what it was configured by, certificates
// folders of these; its paths are absolute.
func policyOf(mode string, h *sandboxneeds.Held, files, folders, certificates []string, logs []earlykeeper.Log) *earlykeeper.Policy {
	absolute := func(list []string) (out []string) {
		for _, path := range list {
			if abs, err := filepath.Abs(path); path != "" && err == nil && len(out) < maxAsked && !slices.Contains(out, abs) {
				out = append(out, abs)
			}
		}
		return out
	}
	p := &earlykeeper.Policy{Mode: mode, Files: absolute(files), Folders: absolute(folders), Certificates: absolute(certificates), Logs: logs,
		WritesNowhereElse: h.Report.Held(sandbox.Files), Write: slices.Clone(h.Policy.Write)}
	for _, path := range h.Policy.Write { // the keeper compares where things really are
		if real, err := filepath.EvalSymlinks(path); err == nil && !slices.Contains(p.Write, real) {
			p.Write = append(p.Write, real)
		}
	}
	if u := h.Policy.User; u != nil && h.Report.Held(sandbox.Credentials) {
		p.Becomes, p.UID = true, u.UID
	}
	p.Sandbox, _ = json.Marshal(h.Policy) // paths and numbers
	return p
}

// certificateFiles returns the files and folders of certificates, and the files of lists, that a configuration names.
func certificateFiles(cfg *spec.Config) (files, folders []string) {
	for _, l := range cfg.Listeners {
		if l.TLS != nil {
			more, in := l.TLS.Files()
			files, folders = append(files, more...), append(folders, in...)
		}
	}
	for _, t := range cfg.ClientTLS() {
		files = append(files, t.CA, t.Cert, t.Key)
	}
	for _, l := range cfg.Lists {
		files = append(files, l.File, l.KeyFile, l.CA)
	}
	return files, folders
}
