package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
)

// commonFiles returns what every architecture has alike. The daemon itself writes
// its manual, completion and schema.
func (r *release) commonFiles(binary, work string) (files []entry, err error) {
	add := func(to string, text []byte, change func(*entry)) {
		e := entry{path: to, mode: 0o644, text: text}
		if change != nil {
			change(&e)
		}
		files = append(files, e)
	}
	read := func(from, to string, change func(*entry)) {
		text, e := os.ReadFile(filepath.Join(r.root, from))
		if e != nil && err == nil {
			err = e
		}
		add(to, text, change)
	}
	written := func(to string, args ...string) {
		text, e := exec.Command(binary, args...).Output()
		if e != nil && err == nil {
			err = fmt.Errorf("%s %s: %w", binary, strings.Join(args, " "), e)
		}
		add(to, text, nil)
	}
	const doc = "usr/share/doc/penstock/"
	read("packaging/penstock.service", "usr/lib/systemd/system/penstock.service", func(e *entry) { e.text = portable(e.text) })
	read("packaging/penstock.yaml", "etc/penstock/penstock.yaml", func(e *entry) { e.config = true })
	read("packaging/penstock.logrotate", "etc/logrotate.d/penstock", func(e *entry) { e.config = true })
	read("packaging/penstock.socket", doc+"examples/penstock.socket", nil)
	read("LICENSE", doc+"copyright", nil)
	read("CHANGELOG.md", doc+"CHANGELOG.md.gz", func(e *entry) { e.text = compress(e.text) })
	docs := os.DirFS(filepath.Join(r.root, "docs"))
	e := fs.WalkDir(docs, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case name == "pictures": // of the README, 1.2 MB
			return fs.SkipDir
		case !d.IsDir():
			read("docs/"+name, doc+name, nil)
		}
		return nil
	})
	if e != nil {
		return nil, e
	}

	written("usr/share/bash-completion/completions/penstock", "completion", "bash")
	written("usr/share/fish/vendor_completions.d/penstock.fish", "completion", "fish")
	written("usr/share/zsh/vendor-completions/_penstock", "completion", "zsh")
	zsh := files[len(files)-1]
	files[len(files)-1].only = "deb"
	zsh.path, zsh.only = "usr/share/zsh/site-functions/_penstock", "rpm"
	files = append(files, zsh)
	written("usr/share/penstock/penstock.schema.json", "schema")

	if err := os.MkdirAll(work, 0o755); err != nil {
		return nil, err
	}
	if out, err := exec.Command(binary, "manual", work).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%s manual: %w\n%s", binary, err, out)
	}
	pages, e := filepath.Glob(filepath.Join(work, "*.1"))
	if e != nil || len(pages) == 0 {
		return nil, fmt.Errorf("no manual pages: %v", e)
	}
	for _, name := range pages {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		add("usr/share/man/man1/"+filepath.Base(name)+".gz", compress(text), nil)
	}
	return files, err
}

// portable makes the unit one that systemd before 253 knows too, which Debian 12 and
// Red Hat 9 have: without notify-reload, a reload is a signal that nobody waits for.
func portable(unit []byte) []byte {
	return bytes.Replace(unit, []byte("\nType=notify-reload\n"), []byte("\nType=notify\nExecReload=/bin/kill -HUP $MAINPID\n"), 1)
}

// compress compresses without a name or a time.
func compress(text []byte) []byte {
	var b bytes.Buffer
	w, _ := gzip.NewWriterLevel(&b, gzip.BestCompression)
	w.Write(text)
	w.Close()
	return b.Bytes()
}

// tarOf writes a tar archive with the folders of its files. A later entry of the
// same name is the writer's mistake.
func (r *release) tarOf(prefix string, files []entry) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	folders := map[string]bool{".": true, "/": true}
	var folder func(name string) error
	folder = func(name string) error {
		if folders[name] {
			return nil
		}
		if err := folder(path.Dir(name)); err != nil {
			return err
		}
		folders[name] = true
		return w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: 0o755, ModTime: r.time, Format: tar.FormatPAX})
	}
	for _, f := range files {
		name := prefix + f.path
		if err := folder(path.Dir(name)); err != nil {
			return nil, err
		}
		h := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: f.mode, Size: int64(len(f.text)), ModTime: r.time, Uid: f.owner, Gid: f.owner, Format: tar.FormatPAX}
		if f.folder {
			folders[name] = true
			h.Typeflag, h.Name = tar.TypeDir, name+"/"
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.text); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// archive writes a .tar.gz with all files below one folder.
func (r *release) archive(to, prefix string, files []entry) error {
	text, err := r.tarOf(prefix, files)
	if err != nil {
		return err
	}
	return os.WriteFile(to, compress(text), 0o644)
}

// pack makes a .deb or .rpm with nfpm of the files, which it reads from a folder.
func (r *release) pack(kind, to, arch string, files []entry, work string) error {
	type info struct {
		Mode  int64  `json:"mode"`
		MTime string `json:"mtime"`
	}
	type content struct {
		Source string `json:"src,omitempty"`
		To     string `json:"dst"`
		Type   string `json:"type,omitempty"`
		Info   info   `json:"file_info"`
	}
	stamp := r.time.Format("2006-01-02T15:04:05Z")
	var contents []content
	folders := map[string]bool{}
	// own makes folders the package's, from the topmost that has its name on, so that rpm removes them; dpkg removes each that is empty.
	own := func(folder string) {
		for i := range len(folder) + 1 {
			one := folder[:i]
			if (i == len(folder) || folder[i] == '/') && strings.Contains(one, "/penstock") && !folders[one] {
				folders[one] = true
				contents = append(contents, content{To: "/" + one, Type: "dir", Info: info{0o755, stamp}})
			}
		}
	}
	for _, f := range files {
		if f.only != "" && f.only != kind {
			continue
		}
		own(path.Dir(f.path))
		from := filepath.Join(work, f.path)
		if err := os.MkdirAll(filepath.Dir(from), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(from, f.text, os.FileMode(f.mode)); err != nil {
			return err
		}
		c := content{Source: from, To: "/" + f.path, Info: info{f.mode, stamp}}
		if f.config {
			c.Type = "config|noreplace"
		}
		contents = append(contents, c)
	}
	script := func(name string) string { return filepath.Join(r.root, "packaging", name) }
	description := "Layer-4 relay for TCP, UDP and Unix sockets\nPenstock relays clients to groups of upstreams: routes by address, TLS server name and ALPN, health checks, limits, the PROXY protocol, reloads without a lost flow, metrics and a dashboard."
	config, err := json.MarshalIndent(map[string]any{ // YAML reads JSON
		"name": "penstock", "arch": arch, "platform": "linux", "version": r.version, "version_schema": "semver", "release": "1", "section": "net", "priority": "optional",
		"maintainer": "The Penstock authors <penstock@users.noreply.github.com>", "description": description, "homepage": "https://github.com/penstock/penstock", "license": license(r.root),
		"mtime": stamp, "contents": contents, "umask": 0o22,
		"scripts": map[string]string{"postinstall": script("postinstall.sh"), "preremove": script("preremove.sh"), "postremove": script("postremove.sh")},
		"rpm":     map[string]any{"buildhost": "localhost", "summary": "Layer-4 relay for TCP, UDP and Unix sockets", "group": "System Environment/Daemons"},
		"deb":     map[string]any{"fields": map[string]string{"Bugs": "https://github.com/penstock/penstock/issues"}},
	}, "", "  ")
	if err != nil {
		return err
	}
	file := filepath.Join(work, "nfpm.yaml")
	if err := os.WriteFile(file, config, 0o644); err != nil {
		return err
	}
	if to, err = filepath.Abs(to); err != nil {
		return err
	}
	env := []string{fmt.Sprintf("SOURCE_DATE_EPOCH=%d", r.time.Unix()), "TZ=UTC"}
	return r.run(env, "go", "run", nfpm, "package", "--config", file, "--packager", kind, "--target", to)
}

// license returns the licence in the file LICENSE, as SPDX names it.
func license(root string) string {
	text, err := os.ReadFile(filepath.Join(root, "LICENSE"))
	if ids := licenseIDs(string(text)); err == nil && len(ids) > 0 {
		return strings.Join(ids, " AND ")
	}
	return "NOASSERTION"
}
