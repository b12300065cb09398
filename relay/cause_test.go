package relay

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"strings"
	"testing"
)

// Each cause has a name of its own, in the form that metrics and logs use.
func TestCauseNames(t *testing.T) {
	form := regexp.MustCompile(`^[a-z]+(-[a-z]+)*$`)
	seen := make(map[string]Cause)
	for c := range causes {
		name := c.String()
		if !form.MatchString(name) || name == "unknown" {
			t.Errorf("cause %d is called %q", c, name)
		}
		if other, ok := seen[name]; ok {
			t.Errorf("causes %d and %d are both called %q", c, other, name)
		}
		seen[name] = c
	}
	if causes.String() != "unknown" || Cause(255).String() != "unknown" {
		t.Error("an invalid cause has a name")
	}
}

// Each cause says when it is given.
func TestCausesAreDocumented(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "cause.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	ast.Inspect(file, func(node ast.Node) bool {
		spec, ok := node.(*ast.ValueSpec)
		if !ok || !strings.HasPrefix(spec.Names[0].Name, "Cause") {
			return true
		}
		n++
		if strings.TrimSpace(spec.Comment.Text()+spec.Doc.Text()) == "" {
			t.Errorf("%s has no comment", spec.Names[0].Name)
		}
		return true
	})
	if n != int(causes) {
		t.Errorf("%d causes are declared, %d count", n, causes)
	}
}

func TestAddrString(t *testing.T) {
	for _, c := range []struct {
		addr Addr
		want string
	}{
		{Addr{}, ""},
		{Addr{Network: Unix, Path: "/run/a"}, "unix:///run/a"},
		{Addr{Network: Unix, Path: "@a"}, "unix:@a"},
		{Addr{Network: Echo}, "echo:"},
		{Addr{Network: Discard}, "discard:"},
	} {
		if got := c.addr.String(); got != c.want {
			t.Errorf("%#v is %q, want %q", c.addr, got, c.want)
		}
	}
}
