package sandboxneeds

import (
	"flag"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/sandbox"
)

var update = flag.Bool("update", false, "write the tables of docs/sandbox.md")

// docs/sandbox.md has the tables of this package. -update writes them.
func TestDocs(t *testing.T) {
	const (
		path  = "../../../../docs/sandbox.md"
		begin = "<!-- needs: made by go test ./internal/sandboxneeds -update -->\n"
		end   = "<!-- end of needs -->\n"
	)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok1 := strings.Cut(string(text), begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok1 || !ok2 {
		t.Fatalf("%s has no marks", path)
	}
	want := before + begin + "\n" + keyTable() + "\n" + endpointTable() + "\n" + changeTable() + "\n" + end + after
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if string(text) != want {
		t.Errorf("%s is not what the tables say; go test ./internal/sandboxneeds -update writes it", path)
	}
}

// words are kinds of needs for a table.
func words(list []Kind) string {
	var parts []string
	for _, k := range list {
		text := strings.Replace(kinds[k].doing, "port %v, a privileged one", "a privileged port", 1)
		text = strings.Replace(text, "port %v", "its port", 1)
		parts = append(parts, strings.Replace(text, "%v", "its folder", 1))
	}
	if len(parts) == 0 {
		return "nothing"
	}
	return strings.Join(parts, ", ")
}

// keyTable has the rows that need the same in one line.
func keyTable() string {
	var lines []string
	keys := map[string][]string{}
	for _, r := range rows {
		when := ""
		if strings.Contains(r.key, ".") && !strings.HasPrefix(r.key, "fs.") {
			when = r.when.String()
		}
		line := fmt.Sprintf("| %s | %s |\n", words(r.needs), when)
		if keys[line] == nil {
			lines = append(lines, line)
		}
		keys[line] = append(keys[line], "`"+strings.TrimPrefix(r.key, "file.")+"`")
	}
	var b strings.Builder
	b.WriteString("| key, or what else | may need | a change takes effect |\n|---|---|---|\n")
	for _, line := range lines {
		b.WriteString("| " + strings.Join(keys[line], ", ") + " " + line)
	}
	return b.String()
}

func endpointTable() string {
	var b strings.Builder
	b.WriteString("| endpoint | tcp | udp | unix | unixgram |\n|---|---|---|---|---|\n")
	needsOf := func(r Role, e spec.Endpoint) string {
		if reflect.ValueOf(endpoints[r][e.Kind]).Pointer() == reflect.ValueOf(notInRole).Pointer() {
			return ""
		}
		var n Needs
		a := &adder{in: &Input{FirstPort: 1024}, needs: &n}
		a.endpoint(r, e)
		var list []Kind
		for _, need := range n {
			list = append(list, need.Kind)
		}
		return words(slices.Compact(list))
	}
	for r := range numRoles {
		fmt.Fprintf(&b, "| %s |", roleNames[r])
		for _, k := range []spec.Kind{spec.TCP, spec.UDP, spec.Unix, spec.Unixgram} {
			text := needsOf(r, spec.Endpoint{Kind: k, Port: 1})
			if k == spec.Unix || k == spec.Unixgram {
				text = needsOf(r, spec.Endpoint{Kind: k, Path: "/folder/path"})
				if abstract := needsOf(r, spec.Endpoint{Kind: k, Path: "@name"}); abstract != text {
					text += "; `@NAME`: " + abstract
				}
			}
			fmt.Fprintf(&b, " %s |", text)
		}
		b.WriteString("\n")
	}
	return b.String()
}

func changeTable() string {
	var b strings.Builder
	b.WriteString("| what changes a running process | may need |\n|---|---|\n")
	var harmless []string
	for _, c := range changes {
		if c.row == "" {
			harmless = append(harmless, c.by)
		} else {
			fmt.Fprintf(&b, "| %s | what %s may need |\n", c.by, c.row)
		}
	}
	fmt.Fprintf(&b, "| %s | nothing |\n", strings.Join(harmless, ", "))
	return b.String()
}

// What a change may need is that of a row.
func TestChangesHaveRows(t *testing.T) {
	for _, c := range changes {
		if c.row != "" && c.row != everyRow && !slices.ContainsFunc(rows, func(r row) bool { return r.key == c.row }) {
			t.Errorf("%s: there is no row %s", c.by, c.row)
		}
	}
}

// Each kind of need has words, and a layer that takes it away.
func TestKinds(t *testing.T) {
	for k := range numKinds {
		r := &kinds[k]
		if r.doing == "" || r.thing == "" || r.layer == 0 {
			t.Errorf("kind %d: %+v", k, r)
		}
		n := Need{Kind: k, Path: "/path", Port: 443}
		var none, p sandbox.Policy
		if r.add(&p, n); k != LowPort && !r.allowed(&p, n) || r.allowed(&none, n) {
			t.Errorf("%s: a policy that allows it does not, or one that does not does", n)
		}
	}
}
