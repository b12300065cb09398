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
// is the files whose names begin with it; "types" are the public types without
// behaviour. ARCHITECTURE.md draws it.
var relayLayers = map[string][]string{
	"types":    {"flow", "listener"}, // hooks are given a Flow, which tells its listener
	"loop":     {},                   // short names of package loop
	"budget":   {},
	"keep":     {"loop", "types"},
	"flow":     {"loop", "budget", "keep", "types", "listener"},
	"listener": {"flow", "budget", "keep", "types", "engine"}, // which owns it, and closes it
	"stream":   {"loop", "budget", "keep", "flow", "listener", "types"},
	"datagram": {"loop", "budget", "keep", "flow", "listener", "types"},
	"engine":   {"loop", "budget", "keep", "flow", "listener", "types", "stream", "datagram"},
}

// relayTypes are the files of the part "types".
var relayTypes = []string{"addr", "answererror", "cause", "counters", "datagram", "keep", "observe", "proxyheader", "record", "relay", "tls"}

// relayRooms are the rooms of the parts that have some, from the top to the bottom: what is in a room
// refers to its own room and to those below, never to one above.
var relayRooms = map[string][]relayRoom{
	"stream": {
		{"turn", []string{"turn", "patrol", "split", "invariants", "invariants_off"}},                                                   // what the loop calls
		{"restore", []string{"restore", "restore_early"}},                                                                               // flows of an earlier process
		{"approach", []string{"accept", "adopt", "answer", "connect", "descriptors", "handshake", "listen", "pause", "queue", "sniff"}}, // until a flow relays
		{"carry", []string{"bandwidth", "carry", "end", "info", "inner", "overload", "records", "timeouts", "tls_close"}},               // bytes, and the end
		{"note", []string{"note", "settle"}},                                                                                            // what the next process needs
		{"flow", []string{"early", "flow", "kernel", "owner", "port", "tls"}},                                                           // what there is, and questions to it
	},
	"datagram": {
		{"turn", []string{"turn", "patrol", "invariants", "invariants_off"}},
		{"restore", []string{"restore"}},
		{"approach", []string{"accept", "close", "listen", "named", "own", "several", "stray"}}, // datagrams of clients, and who is new
		// A flow is connected here, too: when an upstream is unreachable, it goes to the next one in the middle of a send.
		{"carry", []string{"backlog", "carry", "connect", "end", "evict", "info", "memory", "overload", "preface", "reply", "rest", "send", "sniff", "timeouts"}},
		{"note", []string{"note"}},
		{"flow", []string{"ages", "answers", "flow", "outbox", "owner", "port", "runs", "tos"}},
	},
}

// relayRoom is a room: the files whose names have one of words between the part and the system.
type relayRoom struct {
	name  string
	words []string
}

// place is where a file of package relay belongs: a part, and a room of it, counted from the top.
type place struct {
	part string
	room int
}

func (p place) String() string {
	if rooms := relayRooms[p.part]; rooms != nil {
		return p.part + "/" + rooms[p.room].name
	}
	return p.part
}

// placeOf returns where a file belongs. It reports false if it belongs to no part or, in a part that has rooms, to none
// of them.
func placeOf(file string) (p place, ok bool) {
	name := strings.TrimSuffix(strings.TrimSuffix(file, ".go"), "_linux")
	if slices.Contains(relayTypes, name) && file == name+".go" {
		return place{part: "types"}, true
	}
	part, word, _ := strings.Cut(name, "_")
	rooms, ok := relayRooms[part]
	if !ok {
		return place{part: part}, relayLayers[part] != nil && name+".go" != "types.go" && file != part+".go"
	}
	for i, r := range rooms {
		if slices.Contains(r.words, word) {
			return place{part, i}, true
		}
	}
	return place{part: part}, false
}

// above reports whether a place may not refer to another one.
func (p place) above(to place) bool {
	if p.part == to.part {
		return to.room < p.room
	}
	return !slices.Contains(relayLayers[p.part], to.part)
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
		used[r.from.part+" "+r.to.part] = true
		if r.from.above(r.to) {
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

// TestRelayRooms checks that each word of the rooms is that of a file, and what the rules refuse.
func TestRelayRooms(t *testing.T) {
	exists := func(file string) {
		if _, err := os.Stat("../../relay/" + file); err != nil {
			t.Error(err)
		}
	}
	for part, rooms := range relayRooms {
		for _, r := range rooms {
			for _, word := range r.words {
				exists(part + "_" + word + "_linux.go")
			}
		}
	}
	for _, name := range relayTypes {
		exists(name + ".go")
	}
	for file, want := range map[string]string{
		"relay.go": "types", "relay_linux.go": "", "loop_names_linux.go": "loop", "budget_linux.go": "budget", "flow_linux.go": "flow", "holding_linux.go": "", "holding.go": "",
		"stream_carry_linux.go": "stream/carry", "stream_tls_linux.go": "stream/flow", "stream_tls_close_linux.go": "stream/carry",
		"stream_linux.go": "", "stream_holding_linux.go": "", "datagram.go": "types", "datagram_holding_linux.go": "", "types.go": "", "stream.go": "",
	} {
		got := ""
		if p, ok := placeOf(file); ok {
			got = p.String()
		}
		if got != want {
			t.Errorf("relay/%s belongs to %q, want %q", file, got, want)
		}
	}
	for _, c := range []struct {
		from, to string
		above    bool
	}{
		{"stream_turn_linux.go", "stream_flow_linux.go", false},
		{"stream_carry_linux.go", "stream_end_linux.go", false},
		{"stream_carry_linux.go", "stream_connect_linux.go", true},
		{"stream_note_linux.go", "stream_end_linux.go", true},
		{"stream_accept_linux.go", "stream_turn_linux.go", true},
		{"stream_turn_linux.go", "datagram_flow_linux.go", true},
		{"stream_flow_linux.go", "budget_linux.go", false},
		{"budget_linux.go", "stream_flow_linux.go", true},
	} {
		from, _ := placeOf(c.from)
		to, _ := placeOf(c.to)
		if from.above(to) != c.above {
			t.Errorf("%s refers to %s: refused %v, want %v", c.from, c.to, !c.above, c.above)
		}
	}
}

// reference is the use of a declaration of package relay.
type reference struct {
	at       token.Position
	from, to place
	name     string
}

func relayReferences(t *testing.T) (refs []reference) {
	var files []*ast.File
	var fset *token.FileSet
	for _, f := range tree(t) {
		if line := buildLine(f); f.pkg == "relay" && !f.test && line != "!linux" && line != "penstock_invariants" { // as it is built by default
			files, fset = append(files, f.syntax), f.fset
		}
	}
	for _, f := range files {
		name := path.Base(fset.Position(f.Pos()).Filename)
		if _, ok := placeOf(name); !ok {
			t.Errorf("relay/%s belongs to no room: it is in none of relayLayers, relayTypes and relayRooms", name)
		}
	}
	where := func(pos token.Pos) place {
		p, _ := placeOf(path.Base(fset.Position(pos).Filename))
		return p
	}
	info := &types.Info{Uses: make(map[*ast.Ident]types.Object)}
	cfg := types.Config{Importer: importer.ForCompiler(fset, "gc", exported(t))}
	pkg, err := cfg.Check("relay", fset, files, info)
	if err != nil {
		t.Fatal(err)
	}
	for ident, obj := range info.Uses {
		if obj.Pkg() == pkg && obj.Pos().IsValid() {
			refs = append(refs, reference{fset.Position(ident.Pos()), where(ident.Pos()), where(obj.Pos()), obj.Name()})
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
