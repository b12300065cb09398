package config

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"go.yaml.in/yaml/v4"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// Stdin is the path that stands for standard input.
const Stdin = "-"

// Source is where a configuration comes from. Its methods may be called concurrently.
type Source struct {
	// Paths are files, folders of files, [Stdin], or texts in registries as [spec.IsRemote] has them. Later ones
	// are overlays of earlier ones.
	Paths []string
	// Remote returns the present text of a path that names a registry. It returns at once. nil: there are none.
	Remote func(path string) (spec.Layer, error)
	// NoTokens leaves the files with tokens unread: this host may not have them.
	NoTokens bool
	// Node becomes the Node of each configuration.
	Node spec.Node
	// Open opens a file, or a folder to be listed, that this process may not open itself. nil: opening it fails.
	Open func(path string) (*os.File, error)

	mu     sync.Mutex
	kept   map[string][]byte // what was read, once, of paths that are not files: standard input and pipes
	loaded bool              // by an earlier call of Load
	files  []string
	dirs   []string
}

// String returns the paths as messages name them.
func (s *Source) String() string {
	names := make([]string, len(s.Paths))
	for i, path := range s.Paths {
		names[i] = sourceName(path)
	}
	return strings.Join(names, ", ")
}

func sourceName(path string) string {
	if path == Stdin {
		return "stdin"
	}
	if spec.IsRemote(path) {
		path, _, _ = strings.Cut(path, "?")
	}
	return path
}

// Inputs returns what the last [Source.Load] read or tried to read: files, and folders whose
// files it read. The configuration can only change if one of these does.
func (s *Source) Inputs() (files, folders []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.files, s.dirs
}

// Load reads the configuration, with the files that it includes and names. The error is an
// [Errors], or the error of reading one of the paths themselves. Standard input, and a pipe such as
// that of <(command), is read the first time; further calls use the same text.
func (s *Source) Load(rules ...Rule) (*spec.Config, Warnings, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := &loader{env: os.LookupEnv, reads: true, source: s}
	defer func() { s.loaded = true }()
	l.r = &reader{places: map[any]*place{}, secrets: func(path string) ([]byte, error) {
		if s.NoTokens {
			return []byte(fmt.Sprintf("%x", sha256.Sum256([]byte(path)))), nil
		}
		return s.readAtMost(path, maxToken+2)
	}}
	s.files, s.dirs = nil, nil
	var whole *tree
	for i, path := range s.Paths {
		l.seen = map[string]*source{}
		t, err := l.layer(path)
		if err != nil {
			return nil, nil, err
		}
		if i == 0 || whole == nil {
			whole = t
		} else if t != nil {
			l.composed = true
			whole = l.overlay(whole, t, nil)
		}
	}
	return l.finish(s.String(), whole, rules)
}

// Load reads one configuration file and the files that it includes and names. The error is an
// [Errors], or the error of reading the file itself.
func Load(path string, rules ...Rule) (*spec.Config, Warnings, error) {
	return (&Source{Paths: []string{path}}).Load(rules...)
}

// loader reads the texts of a configuration and composes them.
type loader struct {
	r      *reader
	env    func(string) (string, bool) // nil: no variable is set
	reads  bool                        // includes are read
	source *Source

	text      []byte                // of the first text
	seen      map[string]*source    // files of this layer, by path without symbolic links
	number    int                   // of texts
	size      int                   // of all texts, in bytes, with what variables and aliases add
	variables int                   // scalars with variables
	aliased   int                   // values that come from aliases
	tooLarge  bool                  // reported
	unset     bool                  // a variable is not set
	expanded  map[*yaml.Node]bool   // scalars of this text that have variables
	tags      map[string]string     // what tagOf returned for this text
	written   map[*yaml.Node]string // those scalars before that
	layers    []spec.Layer          // the texts of registries
	composed  bool                  // the configuration is not just the first text
	varied    bool                  // variables have values
}

// finish reads the tree of the whole configuration.
func (l *loader) finish(name string, t *tree, rules []Rule) (*spec.Config, Warnings, error) {
	r := l.r
	var c *spec.Config
	if t != nil && !l.tooLarge && !l.unset {
		f := &file{}
		r.start = &place{from: t.from, index: -1, line: t.Line, col: t.Column}
		fileKeys.read(r, node{t, r.start}, f)
		c = r.resolve(f)
		c.Source, c.Text, c.Written = name, l.text, l.text
		if l.source != nil {
			c.Node, c.Layers = l.source.Node, l.layers
		}
		for _, rule := range rules {
			if rule.All != nil {
				if l.source != nil && !l.source.NoTokens && len(r.errs) == 0 {
					rule.All(c, &Report{Open: l.source.Open, r: r})
				}
				continue
			}
			if value := rule.Of(c); *value != "" {
				if err := rule.Check(*value); err != nil {
					r.fail(r.position(value), fault{problem: oneLine(err.Error())})
				}
			}
		}
	}
	inOrder(r.errs)
	inOrder(r.warnings)
	if len(r.errs) > 0 {
		return nil, r.warnings, Errors(r.errs)
	}
	if l.composed || l.varied || r.moved {
		c.Text = t.yaml(true)
	}
	if l.composed {
		c.Written = t.yaml(false)
	}
	return c, r.warnings, nil
}

// layer reads one path of the command line.
func (l *loader) layer(path string) (*tree, error) {
	from := &source{name: sourceName(path), order: l.number}
	if text, ok := l.source.kept[path]; ok {
		from.folder = folderOf(Stdin)
		return l.parse(from, text), nil
	}
	if spec.IsRemote(path) {
		return l.remote(path, from)
	}
	from.folder = folderOf(path)
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		l.number++
		t := &tree{Kind: yaml.MappingNode, Tag: "!!map", from: from, Line: 1, Column: 1}
		l.composed = true
		if l.include(t, path, &place{from: from, index: -1, line: 1, col: 1}); len(t.Content) == 0 && len(l.r.errs) == 0 {
			l.r.fail(&place{from: from, index: -1, line: 1, col: 1}, fault{problem: "the folder has no configuration", allowed: "files whose names end in .yaml or .yml"})
			return nil, nil
		}
		return t, nil
	}
	if !isFile(path) {
		text, err := l.source.keep(path)
		if err != nil {
			return nil, err
		}
		return l.parse(from, text), nil
	}
	l.source.files = append(l.source.files, path)
	text, err := l.source.readAtMost(path, maxFile+1)
	if err != nil {
		return nil, err
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		l.seen[real] = from
	}
	return l.parse(from, text), nil
}

// remote reads a text that is kept in a registry.
func (l *loader) remote(path string, from *source) (*tree, error) {
	if l.source.Remote == nil {
		return nil, fmt.Errorf("%s: a text in a registry is not read here", from.name)
	}
	layer, err := l.source.Remote(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", from.name, err)
	}
	l.layers = append(l.layers, layer)
	from.remote = true
	return l.parse(from, layer.Text), nil
}

// keep reads standard input, or a path that is not a file, and keeps the text for later calls of
// Load. It is an error if there were earlier calls: the path was a file then, and a reload must not
// wait for whoever writes to a pipe.
func (s *Source) keep(path string) (text []byte, err error) {
	if s.loaded {
		return nil, notAFile(path)
	}
	f := os.Stdin
	if path != Stdin {
		if f, err = os.Open(path); err != nil {
			return nil, err
		}
		defer f.Close()
	}
	var r io.Reader = f
	if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
		r = io.NewSectionReader(f, 0, maxFile+1) // another worker has the same standard input, and reads it again
	}
	if text, err = io.ReadAll(io.LimitReader(r, maxFile+1)); err != nil {
		return nil, fmt.Errorf("%s: %w", sourceName(path), err)
	}
	if s.kept == nil {
		s.kept = map[string][]byte{}
	}
	s.kept[path] = text
	return text, nil
}

// Passing returns the texts of paths that cannot be read twice, such as pipes: those that Load has read
// and that another process would not find. Standard input has the path [Stdin].
func (s *Source) Passing() map[string][]byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.kept)
}

// isFile reports whether a path names a regular file, or nothing at all.
func isFile(path string) bool {
	if path == Stdin {
		return false
	}
	info, err := os.Stat(path)
	return err != nil || info.Mode().IsRegular()
}

func notAFile(path string) error {
	return fmt.Errorf("%s is not a regular file", plain(path))
}

// parse returns the tree of a text, joined with the files that it includes. It returns nil if the
// text is empty or has been found to be invalid.
func (l *loader) parse(from *source, text []byte) *tree {
	from.order = l.number
	if l.number++; l.text == nil {
		l.text = text
	}
	if l.size += len(text); l.size > maxFile {
		problem := "the file is too large"
		if l.number > 1 {
			problem = "the configuration is too large"
		}
		l.r.fail(&place{from: from, index: -1, line: 1, col: 1}, fault{problem: problem, allowed: fmt.Sprintf("up to %d bytes", maxFile)})
		return nil
	}
	errs := len(l.r.errs)
	t := l.document(from, text)
	if t == nil && len(l.r.errs) == errs && from.at == nil { // an included file may have nothing but comments
		l.r.fail(&place{from: from, index: -1, line: 1, col: 1}, fault{problem: "the file is empty", allowed: allowedText(fileKeys.shape)})
	}
	if t == nil || l.tooLarge {
		return nil
	}
	if t.Kind != yaml.MappingNode {
		l.r.fail(&place{from: from, index: -1, line: t.Line, col: t.Column}, fault{problem: "is " + kindOf(t), allowed: allowedText(fileKeys.shape)})
		return nil
	}
	var list []*tree
	t.filter(func(key string, value *tree) bool {
		switch {
		case strings.HasPrefix(key, "x-"):
			return false
		case key != "include":
			return true
		case value.Kind == yaml.SequenceNode:
			list = append(list, value.Content...)
		default:
			list = append(list, value)
		}
		l.composed = true
		return false
	})
	for _, item := range list {
		at := &place{from: from, key: "include", index: -1, line: item.Line, col: item.Column, up: &place{from: from, index: -1}}
		switch {
		case item.Kind != yaml.ScalarNode || item.Tag != "!!str" || item.Value == "":
			l.r.fail(at, fault{problem: "is " + kindOf(item), allowed: allowedInclude})
		case !l.reads || from.remote:
			l.r.fail(at, fault{problem: "other files are not read here", allowed: "the whole configuration in one text"})
		default:
			l.include(t, relativeTo(from.name, item.Value), at)
		}
	}
	return t
}

const (
	maxFiles       = 1000 // of one configuration
	allowedInclude = "a file, a folder, or a pattern such as conf.d/*.yaml"
)

// include joins the files that a path names to t: a file, all files of a folder, or all files
// that match a pattern.
func (l *loader) include(t *tree, path string, at *place) {
	info, err := os.Stat(path)
	paths := []string{path}
	switch {
	case err == nil && info.IsDir():
		l.source.dirs = append(l.source.dirs, path)
		if paths, err = l.source.configFiles(path); err != nil {
			l.r.fail(at, fault{problem: oneLine(err.Error()), allowed: allowedInclude})
			return
		}
	case err != nil && strings.ContainsAny(path, "*?["):
		l.source.dirs = append(l.source.dirs, filepath.Dir(path))
		paths, err = l.source.glob(path)
		switch {
		case errors.Is(err, filepath.ErrBadPattern):
			l.r.fail(at, fault{problem: "invalid pattern " + quote(path), allowed: allowedInclude})
			return
		case err != nil:
			l.r.fail(at, fault{problem: oneLine(err.Error()), allowed: allowedInclude})
			return
		}
	}
	for _, path := range paths {
		l.includeFile(t, path, at)
	}
}

func (l *loader) includeFile(t *tree, path string, at *place) {
	if l.number >= maxFiles {
		if l.number == maxFiles {
			l.number++
			l.r.fail(at, fault{problem: "too many files", allowed: fmt.Sprintf("up to %d in one configuration", maxFiles)})
		}
		return
	}
	l.source.files = append(l.source.files, path)
	from := &source{name: path, at: at, folder: folderOf(path)}
	real, err := filepath.EvalSymlinks(path)
	if err == nil {
		if other := l.seen[real]; other != nil {
			l.r.fail(at, includedTwice(other, at.from))
			return
		}
		l.seen[real] = from
	}
	text, err := l.source.readAtMost(path, int64(maxFile-l.size+1))
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("no such file: %s", plain(path))
		}
		l.r.fail(at, fault{problem: oneLine(err.Error()), allowed: allowedInclude})
		return
	}
	if included := l.parse(from, text); included != nil {
		l.join(t, included, &place{from: included.from, index: -1}, 0)
	}
}

// includedTwice is the fault of a file that includes a file that has been read, or that is being
// read: then the files include each other.
func includedTwice(file, by *source) fault {
	chain := file.name
	var names []string
	for s := by; s != nil; s = s.includer() {
		if s == file {
			slices.Reverse(names)
			for _, name := range names {
				chain += " -> " + name
			}
			return fault{problem: "include cycle: " + chain + " -> " + file.name, allowed: "each file once"}
		}
		names = append(names, s.name+includedAt(s))
	}
	return fault{problem: plain(file.name) + " is already read" + includedAt(file), allowed: "each file once"}
}

// includer returns the text that includes a file; nil if a command line names the file.
func (s *source) includer() *source {
	if s.at == nil {
		return nil
	}
	return s.at.from
}

// includedAt says where a file is included.
func includedAt(s *source) string {
	if s.at == nil {
		return ""
	}
	return " (included at " + s.at.String() + ")"
}

// joinedLevels is how deep the mappings of files are joined: the keys of the file, and below each
// of them those of the section, which are names of listeners and groups too.
const joinedLevels = 2

// join adds the keys of an included mapping to t. A key that t has too is an error, unless its
// values can be joined.
func (l *loader) join(t, included *tree, at *place, level int) {
	index := t.index()
	for i := 0; i+1 < len(included.Content); i += 2 {
		key, value := included.Content[i], included.Content[i+1]
		j, ok := index[key.Value]
		keyAt := &place{at, included.from, key.Value, -1, key.Line, key.Column}
		switch {
		case !ok || key.Kind != yaml.ScalarNode:
			t.Content = append(t.Content, key, value)
		case level+1 < joinedLevels && t.Content[j+1].Kind == yaml.MappingNode && value.Kind == yaml.MappingNode:
			l.join(t.Content[j+1], value, keyAt, level+1)
		default:
			l.r.fail(keyAt, fault{problem: "duplicate key, first used at " + t.Content[j].position(), allowed: "each key in one file"})
		}
	}
}

func (t *tree) position() string { return fmt.Sprintf("%s:%d:%d", t.from.name, t.Line, t.Column) }

// overlay returns base changed by over. Mappings are merged key by key, at any depth; any other
// value replaces that of base. A key whose value is empty is removed.
func (l *loader) overlay(base, over *tree, at *place) *tree {
	if base.Kind != yaml.MappingNode || over.Kind != yaml.MappingNode {
		return over
	}
	out := *base
	out.Content = slices.Clone(base.Content)
	index, seen, removed := out.index(), map[string]bool{}, map[string]bool{}
	for i := 0; i+1 < len(over.Content); i += 2 {
		key, value := over.Content[i], over.Content[i+1]
		j, ok := index[key.Value]
		keyAt := &place{at, over.from, key.Value, -1, key.Line, key.Column}
		if at == nil {
			keyAt.up = &place{from: over.from, index: -1}
		}
		switch {
		case seen[key.Value] || key.Kind != yaml.ScalarNode:
			out.Content = append(out.Content, key, value) // a duplicate key is reported later
		case value.Tag == "!!null" && ok:
			removed[key.Value] = true
		case value.Tag == "!!null":
			l.r.warn(keyAt, fault{problem: "there is nothing to remove: no earlier file has the key"})
		case ok:
			out.Content[j], out.Content[j+1] = key, l.overlay(out.Content[j+1], value, keyAt)
		default:
			out.Content = append(out.Content, key, value)
		}
		seen[key.Value] = true
	}
	if len(removed) > 0 {
		out.filter(func(key string, _ *tree) bool { return !removed[key] })
	}
	return &out
}

// relativeTo returns a path that a file names. A relative path starts at the file's folder.
func relativeTo(file, path string) string {
	if filepath.IsAbs(path) || file == sourceName(Stdin) {
		return path
	}
	return filepath.Join(filepath.Dir(file), path)
}
