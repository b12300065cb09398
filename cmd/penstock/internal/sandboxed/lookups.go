package sandboxed

import (
	"errors"
	"io/fs"
	"os"
	"slices"

	"github.com/penstock/penstock/cmd/penstock/internal/sandboxneeds"
)

// lookupFiles are files that package net reads at any time.
var lookupFiles = []string{sandboxneeds.Resolver, "/etc/hosts"}

// readableFiles returns those of the files that this process may read, or that do not exist.
func readableFiles(files []string) (list []string) {
	for _, path := range files {
		f, err := os.Open(path)
		if err == nil {
			f.Close()
		}
		if !errors.Is(err, fs.ErrPermission) {
			list = append(list, path)
		}
	}
	return list
}

// LostFile returns the first file of look-ups that this process may not read any more, because it is another file now; empty: there is none.
func (c *Process) LostFile() string {
	now := readableFiles(c.lookups)
	for _, path := range c.lookups {
		if !slices.Contains(now, path) {
			return path
		}
	}
	return ""
}
