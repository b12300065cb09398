package earlykeeper

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
)

// Policy is what a worker tells the keeper while it has read nothing from strangers yet: what the keeper may open for it, and the sandbox
// that it is in. The keeper does not interpret the latter; the next worker enters it if this one dies.
type Policy struct {
	Mode string `json:"mode"` // on, log or off
	// Files are read for the worker, and so is what is in Folders and ends in .yaml or .yml, and the list of what is in them. Logs are
	// appended to, and made.
	Files   []string `json:"files,omitempty"`
	Folders []string `json:"folders,omitempty"`
	// Certificates are folders of which the list is read, and what ends in .pem, .crt, .key or .ocsp.
	Certificates []string `json:"certificates,omitempty"`
	Logs         []Log    `json:"logs,omitempty"`
	// Write are the paths beneath which the worker writes by itself, and WritesNowhereElse reports that it cannot write elsewhere.
	Write             []string `json:"write,omitempty"`
	WritesNowhereElse bool     `json:"confined,omitempty"`
	// UID is the user that the worker has become, if Becomes is set.
	UID     int  `json:"uid,omitempty"`
	Becomes bool `json:"becomes,omitempty"`

	Sandbox json.RawMessage `json:"sandbox,omitempty"`
}

// Log is a file that is appended to.
type Log struct {
	Path string `json:"path"`
	Mode uint32 `json:"mode"` // of a new one
}

// ModeOn is the mode of a policy that is enforced.
const ModeOn = "on"

// Text returns what [ParsePolicy] reads.
func (p *Policy) Text() string {
	text, err := json.Marshal(p)
	if err != nil {
		panic(err) // strings, numbers and JSON
	}
	return string(text)
}

// ParsePolicy reads the text of a policy. A version that knows more adds fields.
func ParsePolicy(text string) (*Policy, error) {
	p := &Policy{}
	if err := json.Unmarshal([]byte(text), p); err != nil {
		return nil, fmt.Errorf("policy: %w", err)
	}
	return p, nil
}

// Read and Append return requests for a descriptor of the file or folder at an absolute path.
func Read(path string) string   { return verbRead + path }
func Append(path string) string { return verbAppend + path }

const (
	verbRead   = "read "
	verbAppend = "append "
)

// maxPath is PATH_MAX without the zero byte.
const maxPath = 4095

// request is what a worker asks for. It may come from an attacker.
type request struct {
	append bool
	path   string // absolute and clean
}

var (
	errRequest = errors.New("not a request that this keeper knows")
	errPolicy  = errors.New("not in the policy of this worker")
)

func parseRequest(text string) (r request, err error) {
	var ok bool
	if r.path, ok = strings.CutPrefix(text, verbRead); !ok {
		if r.path, ok = strings.CutPrefix(text, verbAppend); !ok {
			return request{}, errRequest
		}
		r.append = true
	}
	if len(r.path) > maxPath || !path.IsAbs(r.path) || path.Clean(r.path) != r.path || strings.ContainsRune(r.path, 0) {
		return request{}, errRequest
	}
	return r, nil
}

// allows reports whether a file may be read.
func (p *Policy) allows(file string) bool {
	if slices.Contains(p.Files, file) || slices.Contains(p.Folders, file) || slices.Contains(p.Certificates, file) {
		return true
	}
	folder, name := path.Split(file)
	folder = path.Clean(folder)
	if strings.HasPrefix(name, ".") {
		return false
	}
	switch path.Ext(name) {
	case ".yaml", ".yml":
		return slices.Contains(p.Folders, folder)
	case ".pem", ".crt", ".key", ".ocsp":
		return slices.Contains(p.Certificates, folder)
	}
	return false
}

// writable reports whether the worker can write at a path by itself, and the path of the policy above it.
func (p *Policy) writable(file string) (root string, yes bool) {
	if !p.WritesNowhereElse {
		return "/", true
	}
	for _, above := range p.Write {
		if file == above || above == "/" || strings.HasPrefix(file, above+"/") {
			return above, true
		}
	}
	return "", false
}
