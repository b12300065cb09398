package config

import (
	"path/filepath"
	"strconv"
	"strings"
)

// Paths of files. There is one rule: a relative path starts at the folder of the file that has it.
// It becomes absolute where it is read, so that nothing else has to know that folder; a text
// without a folder, such as one in a registry, has absolute paths only.

// filePath is the path of a file or folder.
var filePath = paths(texts("path", "a path, absolute or relative to the folder of this file", `^[^\x00-\x1f\x7f]+$`, func(s string) (string, *fault) {
	switch {
	case s == "":
		return "", faultf("is empty")
	case len(s) > 4096:
		return "", faultf("%s has %d bytes", quote(s), len(s))
	}
	return s, nil
}), func(string) bool { return true })

// paths returns the type of values of which some are paths.
func paths(of typ[string], isPath func(string) bool) typ[string] {
	return typ[string]{of.shape, func(r *reader, n node, to *string) {
		var s string
		before := len(r.errs)
		if of.read(r, n, &s); len(r.errs) > before {
			return
		}
		if *to = s; filepath.IsAbs(s) || !isPath(s) {
			return
		}
		from := n.from
		if from.folder == "" {
			r.fail(n.at, fault{problem: plainPath(s) + " is a relative path, and this text is in no folder", allowed: "an absolute path"})
			return
		}
		*to = filepath.Join(from.folder, s)
		if n.written == "" {
			n.written = n.Value
		}
		n.Value, r.moved = *to, true
	}, of.show}
}

// folderOf returns the folder at which relative paths of a file start. Standard input and pipes
// have that of the process.
func folderOf(path string) string {
	if isFile(path) {
		path = filepath.Dir(path)
	} else {
		path = "."
	}
	folder, err := filepath.Abs(path)
	if err != nil {
		return ""
	}
	return folder
}

// plainPath is plain for paths, which are not shortened.
func plainPath(s string) string {
	if oneLine(s) != s || strings.Contains(s, " ") {
		return strconv.Quote(s)
	}
	return s
}

// isURL reports whether a value is an address, and no path.
func isURL(s string) bool { return strings.Contains(s, "://") }
