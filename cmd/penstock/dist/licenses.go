package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// licenseFile matches the names of files whose texts go along with a program that has the code beside them.
var licenseFile = regexp.MustCompile(`(?i)^(LICEN[SC]E|COPYING|NOTICE|PATENTS)(\.(txt|md))?$`)

// licenses are the texts of a program's dependencies, and which licence each module has, as an SPDX expression.
type licenses struct {
	text     []byte
	declared map[string]string
}

// licenses finds the texts in the module cache, of what the packages are that the program consists of: a module may
// have other code, under other licences, that is not in the program.
func (r *release) licenses(arch string) (licenses, error) {
	env := []string{"GOOS=linux", "GOARCH=" + arch, "CGO_ENABLED=0"}
	list, err := r.output(env, "go", "list", "-deps", "-f", "{{with .Module}}{{.Path}}\t{{.Version}}\t{{.Dir}}{{end}}\t{{.Dir}}", "./cmd/penstock")
	if err != nil {
		return licenses{}, err
	}
	toolchain, err := r.output(env, "go", "env", "GOROOT", "GOVERSION")
	if err != nil {
		return licenses{}, err
	}
	goroot, version, _ := strings.Cut(strings.TrimSpace(toolchain), "\n")
	std := "stdlib " + strings.TrimPrefix(version, "go")
	// Files by their path, each once, with the name of what they belong to.
	type file struct{ module, path string }
	var files []file
	seen := map[string]bool{} // folders
	look := func(name, dir string) error {
		if seen[dir] {
			return nil
		}
		seen[dir] = true
		entries, err := os.ReadDir(dir)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if licenseFile.MatchString(e.Name()) && e.Type().IsRegular() {
				files = append(files, file{name, filepath.Join(dir, e.Name())})
			}
		}
		return nil
	}
	if err := look(std, goroot); err != nil {
		return licenses{}, err
	}
	modules := []string{std}
	for line := range strings.Lines(list) {
		f := strings.Split(strings.TrimSpace(line), "\t")
		if len(f) != 4 || f[0] == ourModule || strings.HasPrefix(f[0], ourModule+"/") {
			continue // the standard library's, or our own
		}
		name := f[0] + " " + f[1]
		if !slices.Contains(modules, name) {
			modules = append(modules, name)
		}
		for dir := f[3]; ; dir = filepath.Dir(dir) {
			if err := look(name, dir); err != nil {
				return licenses{}, err
			}
			if dir == f[2] || len(dir) <= len(f[2]) {
				break
			}
		}
	}
	l := licenses{declared: map[string]string{}}
	texts := map[string][]string{} // the modules that have a text
	for _, f := range files {
		text, err := os.ReadFile(f.path)
		if err != nil {
			return licenses{}, err
		}
		key := strings.TrimRight(strings.ReplaceAll(string(text), "\r\n", "\n"), "\n") + "\n"
		if !slices.Contains(texts[key], f.module) {
			texts[key] = append(texts[key], f.module)
		}
		path, _, _ := strings.Cut(f.module, " ")
		l.declared[path] = join(l.declared[path], licenseIDs(key))
	}
	for _, name := range modules {
		if path, _, _ := strings.Cut(name, " "); l.declared[path] == "" {
			return licenses{}, fmt.Errorf("%s: no text of a licence that is known", name)
		}
	}
	l.text = licenseText(texts)
	return l, nil
}

// licenseText returns all licences as one text: each once, below the names of the modules that have it.
func licenseText(texts map[string][]string) []byte {
	type part struct{ names, text string }
	var parts []part
	for text, names := range texts {
		slices.Sort(names)
		parts = append(parts, part{strings.Join(names, "\n"), text})
	}
	slices.SortFunc(parts, func(a, b part) int { return strings.Compare(a.names+a.text, b.names+b.text) })
	var b strings.Builder
	b.WriteString("The program penstock has code of others, under these licences.\n")
	for _, p := range parts {
		rule := strings.Repeat("=", 72)
		fmt.Fprintf(&b, "\n%s\n%s\n%s\n\n%s", rule, p.names, rule, p.text)
	}
	return []byte(b.String())
}

// known are the licences that dependencies have, with words that no other of them has.
var known = []struct{ id, words, without string }{
	{"Apache-2.0", "Apache License", ""},
	{"BSD-2-Clause", "Redistribution and use in source and binary forms", "Neither the name"},
	{"BSD-3-Clause", "Neither the name", ""},
	{"MIT", "Permission is hereby granted, free of charge", ""},
	{"MIT", "original MIT license", ""}, // of a part, in a NOTICE
	{"MPL-2.0", "Mozilla Public License", ""},
}

// licenseIDs returns the licences of a text, sorted, as SPDX names them.
func licenseIDs(text string) (ids []string) {
	text = strings.Join(strings.Fields(text), " ")
	for _, k := range known {
		if strings.Contains(text, k.words) && (k.without == "" || !strings.Contains(text, k.without)) {
			ids = append(ids, k.id)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// join adds licences to an SPDX expression of those that all apply.
func join(expression string, ids []string) string {
	var all []string
	if expression != "" {
		all = strings.Split(expression, " AND ")
	}
	all = append(all, ids...)
	slices.Sort(all)
	return strings.Join(slices.Compact(all), " AND ")
}
