package sandboxneeds

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/penstock/penstock/sandbox"
)

// Where package x509 looks for the certificates of the system's authorities: in the first of the files that is there, and in all of
// the folders (root_linux.go of Go 1.26).
var (
	authorityFiles = []string{"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem",
		"/etc/pki/tls/cacert.pem", "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", "/etc/ssl/cert.pem"}
	authorityFolders = []string{"/etc/ssl/certs", "/etc/pki/tls/certs"}
)

// ReadsAuthorities reports whether a process in a sandbox can read the certificates of the system's authorities. Package x509 does so
// when it first needs them, and only then: if this reports false, they must be read before. That takes 10 ms and 4 MB, which a process
// that verifies nobody should not spend.
func ReadsAuthorities(p *sandbox.Policy) bool {
	files, folders := authorityFiles, authorityFolders
	if file := os.Getenv("SSL_CERT_FILE"); file != "" {
		files = []string{file}
	}
	if list := os.Getenv("SSL_CERT_DIR"); list != "" {
		folders = strings.Split(list, ":")
	}
	found := false
	for _, path := range files {
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if !reads(p, path) {
			return false
		}
		found = true
		break
	}
	for _, folder := range folders {
		entries, err := os.ReadDir(folder)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil || !reads(p, folder) {
			return false
		}
		for _, e := range entries {
			if e.Type()&fs.ModeSymlink == 0 {
				continue
			}
			to, err := os.Readlink(filepath.Join(folder, e.Name()))
			if !filepath.IsAbs(to) {
				to = filepath.Join(folder, to)
			}
			if err != nil || !p.AnyFile && !covers(p.Read, filepath.Clean(to)) {
				return false
			}
		}
		found = true
	}
	return found
}

// reads reports whether a policy has what is at a path, and whether its user may read it.
func reads(p *sandbox.Policy, path string) bool {
	path, err := filepath.EvalSymlinks(path)
	if err != nil || !p.AnyFile && !covers(resolved(p.Read), path) {
		return false
	}
	if p.User == nil {
		return true
	}
	for need := fs.FileMode(0o4); ; need = 0o1 { // to read it, and to pass through what it is in
		if at, err := os.Stat(path); err != nil || at.Mode()&need == 0 {
			return false
		}
		if path == "/" {
			return true
		}
		path = filepath.Dir(path)
	}
}

// resolved returns paths without symbolic links, as the kernel knows them; those that do not exist are left out.
func resolved(paths []string) (list []string) {
	for _, path := range paths {
		if path, err := filepath.EvalSymlinks(path); err == nil {
			list = append(list, path)
		}
	}
	return list
}
