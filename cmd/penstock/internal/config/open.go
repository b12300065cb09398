package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// configFiles returns the configuration files of a folder, in the order of their names.
func (s *Source) configFiles(dir string) (paths []string, err error) {
	entries, err := s.readDir(dir)
	for _, e := range entries {
		name := e.Name()
		if ext := filepath.Ext(name); (ext == ".yaml" || ext == ".yml") && !strings.HasPrefix(name, ".") {
			paths = append(paths, filepath.Join(dir, name))
		}
	}
	return paths, err
}

// glob returns the files that match a pattern. Glob does not tell a folder that may not be read from an empty one.
func (s *Source) glob(pattern string) ([]string, error) {
	paths, err := filepath.Glob(pattern)
	dir, name := filepath.Dir(pattern), filepath.Base(pattern)
	if err != nil || len(paths) > 0 || strings.ContainsAny(dir, "*?[") {
		return paths, err
	}
	entries, err := s.readDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		if ok, _ := filepath.Match(name, e.Name()); ok {
			paths = append(paths, filepath.Join(dir, e.Name()))
		}
	}
	return paths, err
}

// readDir is os.ReadDir, with Open.
func (s *Source) readDir(dir string) ([]fs.DirEntry, error) {
	f, err := s.open(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	entries, err := f.ReadDir(-1)
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, err
}

// open is os.Open, with Open.
func (s *Source) open(path string) (*os.File, error) {
	f, err := os.Open(path)
	if s.Open != nil && errors.Is(err, fs.ErrPermission) {
		if asked, failed := s.Open(path); failed == nil {
			return asked, nil
		}
	}
	return f, err
}

// readAtMost reads the first n bytes of a regular file. A pipe is not even opened: that would wait
// for its other end.
func (s *Source) readAtMost(path string, n int64) ([]byte, error) {
	if !isFile(path) {
		return nil, notAFile(path)
	}
	f, err := s.open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, n))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return text, nil
}
