package archtest

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// relayLayers says which parts of package relay may refer to which others. A part
// is the files whose names begin with it; "types" is all the others, the public
// types without behaviour. ARCHITECTURE.md draws it.
var relayLayers = map[string][]string{
	"types":    {"flow", "listener"}, // hooks are given a Flow, which tells its listener
	"loop":     {"types"},            // LoopStats
	"keep":     {"loop", "types"},
	"flow":     {"loop", "keep", "types", "listener"},
	"listener": {"loop", "flow", "keep", "types", "engine"}, // which owns it, and closes it
	"stream":   {"loop", "keep", "flow", "listener", "types"},
	"datagram": {"loop", "keep", "flow", "listener", "types"},
	"engine":   {"loop", "keep", "flow", "listener", "types", "stream", "datagram"},
}

// What waits knows nothing of what moves, and the two kinds of flow nothing of each
// other: references in package relay run one way.
func TestRelayLayers(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the engine is for Linux")
	}
	refs := relayReferences(t)
	used := make(map[string]bool)
	for _, r := range refs {
		used[r.from+" "+r.to] = true
		if r.from != r.to && !slices.Contains(relayLayers[r.from], r.to) {
			t.Errorf("%s: %q may not refer to %q, where %s is", r.at, r.from, r.to, r.name)
		}
	}
	for from, tos := range relayLayers {
		if !used[from+" "+from] {
			t.Errorf("part %q refers to nothing of its own", from)
		}
		for _, to := range tos {
			if !used[from+" "+to] {
				t.Errorf("%q may refer to %q and does not", from, to)
			}
		}
	}
}

// reference is the use of a declaration of package relay.
type reference struct {
	at       token.Position
	from, to string // parts
	name     string
}

func relayReferences(t *testing.T) (refs []reference) {
	var files []*ast.File
	var fset *token.FileSet
	for _, f := range tree(t) {
		if f.pkg == "relay" && !f.test && buildLine(f) != "!linux" {
			files, fset = append(files, f.syntax), f.fset
		}
	}
	for _, f := range files {
		name := path.Base(fset.Position(f.Pos()).Filename)
		if prefix, _, ok := strings.Cut(name, "_"); ok && relayLayers[prefix] == nil {
			t.Errorf("relay/%s belongs to no part: its name begins with none of relayLayers", name)
		}
	}
	part := func(pos token.Pos) string {
		name := path.Base(fset.Position(pos).Filename)
		prefix, _, _ := strings.Cut(strings.TrimSuffix(name, ".go"), "_")
		if _, ok := relayLayers[prefix]; ok && strings.Contains(name, "_") {
			return prefix
		}
		return "types"
	}
	info := &types.Info{Uses: make(map[*ast.Ident]types.Object)}
	cfg := types.Config{Importer: importer.ForCompiler(fset, "gc", exported(t))}
	pkg, err := cfg.Check("relay", fset, files, info)
	if err != nil {
		t.Fatal(err)
	}
	for ident, obj := range info.Uses {
		if obj.Pkg() == pkg && obj.Pos().IsValid() {
			refs = append(refs, reference{fset.Position(ident.Pos()), part(ident.Pos()), part(obj.Pos()), obj.Name()})
		}
	}
	slices.SortFunc(refs, func(a, b reference) int { return strings.Compare(a.at.String(), b.at.String()) })
	return refs
}

// exported finds the compiler's export data of what package relay imports.
func exported(t *testing.T) importer.Lookup {
	cmd := exec.Command("go", "list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}", "./relay")
	cmd.Dir = "../.."
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.Bytes())
	}
	files := make(map[string]string)
	for line := range strings.Lines(string(out)) {
		name, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		files[name] = file
	}
	return func(name string) (io.ReadCloser, error) {
		if files[name] == "" {
			return nil, fmt.Errorf("no export data of %s", name)
		}
		return os.Open(files[name])
	}
}
