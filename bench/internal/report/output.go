//go:build linux

package report

import (
	"io"
	"os"
)

// Output returns the standard output, which is also written to a file if one is named. The caller must call done.
func Output(file string) (out io.Writer, done func(), err error) {
	if file == "" {
		return os.Stdout, func() {}, nil
	}
	f, err := os.Create(file)
	if err != nil {
		return nil, nil, err
	}
	return io.MultiWriter(os.Stdout, f), func() { f.Close() }, nil
}
