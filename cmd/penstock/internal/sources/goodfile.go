package sources

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/config"
	"github.com/penstock/penstock/cmd/penstock/internal/saved"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// A goodFile keeps the last version of a remote text that was applied, in a folder of this host, so that the
// relay starts while the registry is away. It is a configuration that can be read and checked, after a few
// lines of comments:
//
//	# Penstock's last good configuration, sha256 of what follows this line: HEX
//	# source: etcd://10.0.0.1:2379/penstock/edge
//	# version: 12
//	# published: 2026-11-22T13:00:00Z
//	#
//	listeners: ...
//
// The file before it is kept beside it, and used if this one cannot be read. The name of the file is made of the
// URL; but servers are only how one gets to a key, and their list is changed just when one of them is lost. So the
// files of other lists are found by what they say of their source.
type goodFile struct {
	path string
	name string // of the source, without options
}

const (
	goodFileBegins = "# Penstock's last good configuration, sha256 of what follows this line: "
	maxGoodFile    = 8 << 20
	previousSuffix = ".previous"

	goodFilePattern = "config-*.yaml"
)

// newGoodFile returns the file in which a folder keeps the last good version of a source, or nil without a folder.
func newGoodFile(folder, path string) *goodFile {
	if folder == "" {
		return nil
	}
	name := spec.RemoteName(path)
	sum := sha256.Sum256([]byte(name))
	return &goodFile{filepath.Join(folder, "config-"+hex.EncodeToString(sum[:6])+".yaml"), name}
}

// read returns the version that was kept, and where it is from; the error is that of the newest file that cannot be used.
// Without either, there is none.
func (f *goodFile) read() (last lastGood, err error) {
	if f == nil {
		return last, nil
	}
	for _, path := range []string{f.path, f.path + previousSuffix} {
		l, failed := f.readFile(path)
		switch {
		case failed == nil && last.from == "":
			last = lastGood{Layer: l, from: path}
		case failed != nil && !errors.Is(failed, fs.ErrNotExist) && err == nil && last.from == "":
			err = fmt.Errorf("%s: %w", path, failed)
		}
	}
	for _, other := range f.readOthers(last.from == "") {
		if last.from == "" || other.At.After(last.At) {
			last = other
		}
	}
	return last, err
}

// readOthers returns what is kept of the same key for other lists of servers that have one in common with this one; or with
// any, if there is nothing else of that key in the folder, the one of another list.
func (f *goodFile) readOthers(anyServer bool) (list []lastGood) {
	paths, _ := filepath.Glob(filepath.Join(filepath.Dir(f.path), goodFilePattern))
	var strangers []lastGood
	for _, path := range paths {
		l, err := readGoodFile(path)
		if path == f.path || err != nil {
			continue
		}
		same, shared := sameKey(l.Path, f.name)
		if !same {
			continue
		}
		last := lastGood{Layer: l, from: path + ", which is of " + l.Path, stranger: !shared}
		if shared {
			list = append(list, last)
		} else {
			strangers = append(strangers, last)
		}
	}
	if len(list) == 0 && anyServer && len(strangers) == 1 {
		return strangers
	}
	return list
}

// sameKey reports whether two sources are the same key of registries of one kind, and whether they have a server in common.
func sameKey(a, b string) (same, shared bool) {
	x, key, err := spec.ParseRemote(a)
	y, other, failed := spec.ParseRemote(b)
	if err != nil || failed != nil || x.Kind != y.Kind || key != other {
		return false, false
	}
	hostOf := func(server string) string { _, host, _ := strings.Cut(server, "://"); return host }
	return true, slices.ContainsFunc(x.ServerList(), func(s string) bool {
		return slices.ContainsFunc(y.ServerList(), func(t string) bool { return hostOf(s) == hostOf(t) })
	})
}

// readFile returns what a file has of this source.
func (f *goodFile) readFile(path string) (spec.Layer, error) {
	l, err := readGoodFile(path)
	if err == nil && l.Path != f.name {
		return spec.Layer{}, fmt.Errorf("it is a configuration from %s", l.Path)
	}
	return l, err
}

// readGoodFile returns what a file has; its Path is the source.
func readGoodFile(path string) (spec.Layer, error) {
	in, err := os.Open(path)
	if err != nil {
		return spec.Layer{}, err
	}
	defer in.Close()
	text, err := io.ReadAll(io.LimitReader(in, maxGoodFile+1))
	if err != nil {
		return spec.Layer{}, err
	}
	return parseGoodFile(text)
}

var errDamaged = errors.New("the file is damaged, or was changed by hand")

// parseGoodFile reads what format has written.
func parseGoodFile(text []byte) (l spec.Layer, err error) {
	first, rest, ok := bytes.Cut(text, []byte("\n"))
	sum, begins := strings.CutPrefix(string(first), goodFileBegins)
	if !ok || !begins || len(text) > maxGoodFile || sum != spec.HashOf(rest) {
		return l, errDamaged
	}
	r := bufio.NewReader(bytes.NewReader(rest))
	left := len(rest)
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return l, errDamaged
		}
		left -= len(line)
		key, value, _ := strings.Cut(strings.TrimSuffix(strings.TrimPrefix(line, "# "), "\n"), ": ")
		switch key {
		case "source":
			l.Path = value
		case "version":
			l.Version = value
		case "published":
			if l.At, err = time.Parse(time.RFC3339Nano, value); err != nil {
				return l, errDamaged
			}
		case "#":
			l.Text = rest[len(rest)-left:]
			if l.Path == "" || l.Version == "" {
				return l, errDamaged
			}
			return l, nil
		}
	}
}

func (f *goodFile) format(l *spec.Layer) []byte {
	rest := fmt.Appendf(nil, "# source: %s\n# version: %s\n# published: %s\n#\n%s", f.name, config.PlainLine(l.Version), l.At.UTC().Format(time.RFC3339Nano), l.Text)
	return append([]byte(goodFileBegins+spec.HashOf(rest)+"\n"), rest...)
}

// write keeps a version. It returns when it is on the disk.
func (f *goodFile) write(l *spec.Layer) error {
	if f == nil {
		return nil
	}
	text := f.format(l)
	if len(text) > maxGoodFile { // it could not be read, and would drive out what can be
		return fmt.Errorf("version %s has %d bytes; kept are up to %d", config.PlainLine(l.Version), len(text), maxGoodFile)
	}
	if err := saved.WriteFile(f.path, f.path+previousSuffix, text); err != nil {
		return err
	}
	f.removeOthers()
	return nil
}

// removeOthers removes the files of other lists of servers of the same registry, which are older now.
func (f *goodFile) removeOthers() {
	paths, _ := filepath.Glob(filepath.Join(filepath.Dir(f.path), goodFilePattern))
	for _, path := range paths {
		if l, err := readGoodFile(path); err == nil && path != f.path {
			if same, shared := sameKey(l.Path, f.name); same && shared {
				os.Remove(path)
				os.Remove(path + previousSuffix)
			}
		}
	}
}
