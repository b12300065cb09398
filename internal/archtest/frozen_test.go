package archtest

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"strings"
	"testing"
)

// publicPackage is a package whose API has a golden file.
type publicPackage struct {
	pkg    string // its folder
	frozen bool   // from 1.0 on only additions; the others may change, as the second sentence of their documentation says
	names  int    // exported functions, types, methods, fields, constants and variables
}

// published lists the public packages. A name more in a frozen package is kept for ever: the number is raised here, by
// whoever adds it, in view of the sum.
var published = []publicPackage{
	{"pool", true, 34},
	{"dgram", true, 77},
	{"datapath", true, 21},
	{"splice", true, 53},
	{"clienthello", true, 17},
	{"relay", true, 248},
	{"relay/hold", false, 61},
	{"relay/overload", false, 21},
	{"relay/origin", false, 10},
	{"relay/stats", false, 134},
	{"xnet", false, 13}, // its methods have types of golang.org/x/net, which is v0 and may change them
	{"quichello", false, 35},
	{"keeper", false, 176},
	{"sandbox", false, 50},
}

// mostFrozen is the maximum of the names that all frozen packages have together.
const mostFrozen = 450

// TestFrozen counts the names of each public package.
func TestFrozen(t *testing.T) {
	sum := 0
	for _, p := range published {
		d, _ := apiOf(t, p.pkg, "linux", parser.ParseComments)
		n := len(exportedNames(d))
		if n != p.names {
			t.Errorf("package %s has %d exported names, and %d in the table", p.pkg, n, p.names)
		}
		if p.frozen {
			sum += n
		}
		if got := strings.Contains(secondSentence(d.Doc), "may change"); got == p.frozen {
			t.Errorf("the second sentence of package %s says that it may change: %v; frozen: %v\n\t%s", p.pkg, got, p.frozen, secondSentence(d.Doc))
		}
	}
	t.Logf("%d names are frozen", sum)
	if sum > mostFrozen {
		t.Errorf("%d names are frozen; at most %d may be", sum, mostFrozen)
	}
}

// secondSentence returns the second sentence of a package's documentation.
func secondSentence(text string) string {
	sentences := strings.SplitN(strings.Join(strings.Fields(text), " ")+" ", ". ", 3)
	if len(sentences) < 2 {
		return ""
	}
	return sentences[1]
}

// exportedNames returns the exported names of a package, those of methods and fields with their type. What an embedded
// field promotes is not counted: it is counted where it is declared.
func exportedNames(d *doc.Package) (names []string) {
	add := func(of string, all ...*ast.Ident) {
		for _, id := range all {
			if id.IsExported() {
				names = append(names, of+id.Name)
			}
		}
	}
	values := func(vs []*doc.Value) {
		for _, v := range vs {
			for _, s := range v.Decl.Specs {
				add("", s.(*ast.ValueSpec).Names...)
			}
		}
	}
	funcs := func(of string, fs []*doc.Func) {
		for _, f := range fs {
			add(of, f.Decl.Name)
		}
	}
	values(d.Consts)
	values(d.Vars)
	funcs("", d.Funcs)
	for _, x := range d.Types {
		spec := x.Decl.Specs[0].(*ast.TypeSpec)
		add("", spec.Name)
		var fields *ast.FieldList
		switch u := spec.Type.(type) {
		case *ast.StructType:
			fields = u.Fields
		case *ast.InterfaceType:
			fields = u.Methods
		}
		if fields != nil {
			for _, f := range fields.List {
				if f.Names == nil { // embedded
					add(x.Name+".", embeddedName(f.Type)...)
				}
				add(x.Name+".", f.Names...)
			}
		}
		values(x.Consts)
		values(x.Vars)
		funcs("", x.Funcs)
		funcs(x.Name+".", x.Methods)
	}
	return names
}

// embeddedName returns the name of an embedded field; none for a constraint of an interface.
func embeddedName(x ast.Expr) []*ast.Ident {
	switch x := x.(type) {
	case *ast.Ident:
		return []*ast.Ident{x}
	case *ast.StarExpr:
		return embeddedName(x.X)
	case *ast.SelectorExpr:
		return []*ast.Ident{x.Sel}
	case *ast.IndexExpr:
		return embeddedName(x.X)
	}
	return nil
}

// TestExportedNames checks the count with a package that has each kind of name once.
func TestExportedNames(t *testing.T) {
	const src = `// Package p is small. Its API may change.
package p

import "net"

const A, b = 1, 2

var C = 1

func D() {}

type E struct {
	net.Conn
	F, g int
	h    struct{ I int }
}

func (E) J() {}

func NewE() *E { return nil }

type K interface{ L() }

type M uint8

const (
	N M = iota
	_
	o
)

type p struct{ Q int }

func (p) R() {}
`
	fset := token.NewFileSet()
	d := parsePackage(t, fset, "p", map[string]string{"p.go": src}, parser.ParseComments)
	const want = "A C D E E.Conn E.F NewE E.J K K.L M N"
	if got := strings.Join(exportedNames(d), " "); got != want {
		t.Errorf("the names are %s, want %s", got, want)
	}
	if got := secondSentence(d.Doc); got != "Its API may change" {
		t.Errorf("the second sentence is %q", got)
	}
}
