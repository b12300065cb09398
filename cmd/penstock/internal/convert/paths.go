package convert

import (
	"fmt"
	"path"
	"strings"
)

// ReadFile returns the text of one file.
func (p *Plan) ReadFile(name string) ([]byte, string) {
	if p.Source.Read == nil {
		return nil, "the file " + Quote(name) + " was not read"
	}
	files, err := p.Source.Read(name)
	if err != nil {
		return nil, err.Error()
	}
	var all []byte
	for _, f := range files {
		if !p.Spend(len(f.Text)) {
			return nil, fmt.Sprintf("the files have more than %d bytes together", MaxText)
		}
		all = append(all, f.Text...)
	}
	return all, ""
}

// Path returns the absolute path of a file that TLS needs; without one it says so.
func (p *Plan) Path(at Place, what, base, name string) (string, bool) {
	if !strings.HasPrefix(name, "/") && !strings.HasPrefix(name, "@") && base != "" {
		name = strings.TrimSuffix(base, "/") + "/" + name
	}
	if !strings.HasPrefix(name, "/") || path.Clean(name) == "/" || OneLine(name) != name || strings.Contains(name, "$") || len(name) > 4096 {
		p.Note(at, "%s %s: not the absolute path of a file", what, Quote(name))
		return "", false
	}
	return path.Clean(name), true
}

// IsFolder reports whether a path is that of a folder, or looks like it where nobody can tell.
func (p *Plan) IsFolder(full, written string) bool {
	folder, exists := p.Stat(full)
	return folder || !exists && (strings.HasSuffix(written, "/") || path.Ext(full) == "")
}

func (p *Plan) Stat(name string) (folder, exists bool) {
	if p.Source.Stat == nil {
		return false, false
	}
	return p.Source.Stat(name)
}

// Spend takes bytes of an included file from the budget, and reports whether it had as many.
func (p *Plan) Spend(n int) bool {
	if n > p.budget {
		return false
	}
	p.budget -= n
	return true
}
