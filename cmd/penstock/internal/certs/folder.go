package certs

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// maxFolder bounds the files of a folder.
const maxFolder = 4 * 4096

// list returns the pairs in a folder, in the order of their names: NAME.pem or NAME.crt, with NAME.key if there is one, and NAME.ocsp.
// Files whose names begin with a dot, and those with other endings, are ignored.
func list(o *Options, folder string) (pairs []spec.Certificate, err error) {
	f, err := o.open(folder)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.Readdirnames(maxFolder + 1)
	switch {
	case len(names) > maxFolder:
		return nil, fmt.Errorf("there are more than %d files", maxFolder)
	case err != nil && len(names) > 0:
		return nil, err
	}
	slices.Sort(names)
	there := make(map[string]bool, len(names))
	for _, name := range names {
		there[name] = true
	}
	for _, name := range names {
		ext := filepath.Ext(name)
		base := strings.TrimSuffix(name, ext)
		if strings.HasPrefix(name, ".") || ext != ".pem" && ext != ".crt" || ext == ".pem" && there[base+".crt"] {
			continue
		}
		c := spec.Certificate{Chain: filepath.Join(folder, name)}
		if there[base+".key"] {
			c.Key = filepath.Join(folder, base+".key")
		}
		if there[base+".ocsp"] {
			c.OCSP = filepath.Join(folder, base+".ocsp")
		}
		pairs = append(pairs, c)
	}
	if len(pairs) == 0 {
		return nil, fmt.Errorf("there are no certificates in it; allowed: NAME.pem or NAME.crt, with NAME.key")
	}
	return pairs, nil
}
