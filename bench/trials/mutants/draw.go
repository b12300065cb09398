package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// mutant is a change of one line.
type mutant struct {
	number   int // in the binary; 0: it is not in it
	file     string
	line     int
	kind     string
	from, to int    // what of the file is one of two
	isBool   bool   // it is an expression, and otherwise a statement
	other    string // what it is when the mutant is on; empty: nothing
	old      string // of the line, what changes, and to what
	new      string
}

func (m *mutant) String() string {
	return fmt.Sprintf("%3d  %s:%d  %s", m.number, m.file, m.line, m.change())
}

// change tells what changes.
func (m *mutant) change() string {
	return strings.TrimRight(fmt.Sprintf("%s: %s => %s", m.kind, m.old, m.new), " ")
}

// swaps are operators, and what they are swapped for.
var swaps = map[token.Token]token.Token{
	token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR,
	token.EQL: token.NEQ, token.NEQ: token.EQL, token.LAND: token.LOR, token.LOR: token.LAND,
}

// others are named constants, and what one more or less makes of them.
var others = map[string]string{"true": "false", "false": "true", "up": "down", "down": "up", "sideClient": "sideUpstream", "sideUpstream": "sideClient"}

// candidates returns what can be drawn, by line, of files whose names match an expression.
func (b *builder) candidates(reached *reach, of *regexp.Regexp) (lines [][]*mutant, err error) {
	for _, dir := range packages {
		names, err := filepath.Glob(filepath.Join(b.root, dir, "*.go"))
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			file := filepath.ToSlash(filepath.Join(dir, filepath.Base(name)))
			if strings.Contains(name, "_invariants_") || !reached.has(file) || !of.MatchString(file) {
				continue
			}
			text, err := os.ReadFile(name)
			if err != nil {
				return nil, err
			}
			found, err := candidatesOf(file, text, reached)
			if err != nil {
				return nil, err
			}
			lines = append(lines, found...)
		}
	}
	return lines, nil
}

// candidatesOf returns what can be drawn of a file, by line.
func candidatesOf(file string, text []byte, reached *reach) ([][]*mutant, error) {
	set := token.NewFileSet()
	tree, err := parser.ParseFile(set, file, text, 0)
	if err != nil {
		return nil, err
	}
	f := finder{file: file, text: text, set: set, reached: reached, byLine: make(map[int][]*mutant)}
	for _, d := range tree.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Body != nil {
			f.last = fn.Body.List
			ast.Inspect(fn.Body, f.look)
		}
	}
	var lines []int
	for line := range f.byLine {
		lines = append(lines, line)
	}
	slices.Sort(lines)
	var found [][]*mutant
	for _, line := range lines {
		found = append(found, f.byLine[line])
	}
	return found, nil
}

// finder finds the candidates of one file.
type finder struct {
	file    string
	text    []byte
	set     *token.FileSet
	reached *reach
	last    []ast.Stmt // the function's own statements
	byLine  map[int][]*mutant
}

func (f *finder) look(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.BlockStmt:
		f.statements(n.List)
	case *ast.CaseClause:
		f.statements(n.Body)
	case *ast.CommClause:
		f.statements(n.Body)
	case *ast.IfStmt:
		f.condition(n.Cond)
	case *ast.ForStmt:
		f.condition(n.Cond)
	case *ast.BinaryExpr:
		if op, ok := swaps[n.Op]; ok {
			at := f.offset(n.OpPos)
			f.add(n, true, "swapped", at, at+len(n.Op.String()), op.String())
			f.constants(n, true)
		}
	}
	return true
}

// statements looks at those of a block.
func (f *finder) statements(list []ast.Stmt) {
	for _, s := range list {
		from, to := f.offset(s.Pos()), f.offset(s.End())
		switch x := s.(type) {
		case *ast.AssignStmt:
			if x.Tok == token.DEFINE {
				continue
			}
			f.add(s, false, "left out", from, to, "")
			f.constants(s, false)
		case *ast.ExprStmt, *ast.IncDecStmt, *ast.SendStmt, *ast.DeferStmt:
			f.add(s, false, "left out", from, to, "")
			f.constants(s, false)
		case *ast.BranchStmt:
			if x.Label == nil && x.Tok != token.FALLTHROUGH && x.Tok != token.GOTO {
				f.add(s, false, "left out", from, to, "")
			}
		case *ast.ReturnStmt:
			if len(f.last) == 0 || f.last[len(f.last)-1] != s {
				f.add(s, false, "left out", from, to, "")
			}
			f.constants(s, false)
		}
	}
}

// condition negates one.
func (f *finder) condition(e ast.Expr) {
	if e != nil {
		from, to := f.offset(e.Pos()), f.offset(e.End())
		f.add(e, true, "negated", from, to, "!("+string(f.text[from:to])+")")
	}
}

// constants looks at those in n, which are not in a function or a comparison of their own.
func (f *finder) constants(n ast.Node, isBool bool) {
	ast.Inspect(n, func(x ast.Node) bool {
		switch x := x.(type) {
		case *ast.FuncLit, *ast.SelectorExpr, *ast.KeyValueExpr:
			return false
		case *ast.BinaryExpr:
			_, own := swaps[x.Op]
			return x == n || !own
		case *ast.BasicLit:
			if v, err := strconv.ParseInt(x.Value, 0, 64); err == nil && x.Kind == token.INT {
				f.add(n, isBool, "constant", f.offset(x.Pos()), f.offset(x.End()), strconv.FormatInt(v+1, 10))
				f.add(n, isBool, "constant", f.offset(x.Pos()), f.offset(x.End()), strconv.FormatInt(v-1, 10))
			}
		case *ast.Ident:
			if other, ok := others[x.Name]; ok {
				f.add(n, isBool, "constant", f.offset(x.Pos()), f.offset(x.End()), other)
			}
		}
		return true
	})
}

func (f *finder) offset(p token.Pos) int { return f.set.Position(p).Offset }

// add adds a change of the text between from and to, in a unit that is on one line and that the simulation runs.
func (f *finder) add(unit ast.Node, isBool bool, kind string, from, to int, text string) {
	begin, end := f.set.Position(unit.Pos()), f.set.Position(unit.End())
	if begin.Line != end.Line || !f.reached.runs(f.file, begin.Line, begin.Column) {
		return
	}
	m := &mutant{file: f.file, line: begin.Line, kind: kind, from: begin.Offset, to: end.Offset, isBool: isBool,
		old: string(f.text[begin.Offset:end.Offset])}
	if kind != "left out" {
		m.other = string(f.text[begin.Offset:from]) + text + string(f.text[to:end.Offset])
	}
	m.new = m.other
	f.byLine[begin.Line] = append(f.byLine[begin.Line], m)
}

// draw returns one mutant of each line, in the order of the seed.
func draw(seed uint64, lines [][]*mutant) (all []*mutant) {
	r := rand.New(rand.NewPCG(seed, 1))
	for _, line := range lines {
		all = append(all, line[r.IntN(len(line))])
	}
	r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}
