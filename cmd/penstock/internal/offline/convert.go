package offline

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/penstock/penstock/cmd/penstock/internal/cli"
	"github.com/penstock/penstock/cmd/penstock/internal/config"
	"github.com/penstock/penstock/cmd/penstock/internal/convert"
	"github.com/penstock/penstock/cmd/penstock/internal/convert/haproxy"
	"github.com/penstock/penstock/cmd/penstock/internal/convert/nginx"
	"github.com/penstock/penstock/cmd/penstock/internal/rules"
)

// exitPartly is the exit code of convert when parts of the original are missing.
const exitPartly = 3

// maxOriginal bounds one file of another product, in bytes.
const maxOriginal = 4 << 20

// originalReaders are the readers of other products' configurations, by what --from says.
var originalReaders = map[convert.Product]*convert.Reader{convert.HAProxy: haproxy.Reader, convert.Nginx: nginx.Reader}

// Convert is the command convert.
type Convert struct {
	Files []string `arg:"" name:"FILE" help:"haproxy.cfg or nginx.conf, or - for standard input. Several files are read as one configuration."`
	From  string   `enum:"auto,haproxy,nginx" default:"auto" placeholder:"PRODUCT" help:"What the file was written for: haproxy, nginx, or auto (the default), which looks at the file."`
}

// Help returns the text that penstock convert --help prints below the flags.
func (Convert) Help() string {
	return "The configuration is written to standard output, and what has no counterpart in it is listed on standard error, as FILE:LINE. Included files are read; relative paths start at the folder of the first FILE. " +
		"Exit codes: 0: everything has a counterpart; 3: the list is not empty; 2: nothing could be converted; 1: a file could not be read."
}

// Run runs the command.
func (c *Convert) Run(call Call) int {
	stdout, stderr := call.Stdout, call.Stderr
	var files []convert.File
	for _, name := range c.Files {
		f, err := readOriginal(name)
		if err != nil {
			fmt.Fprintln(stderr, "penstock:", err)
			return cli.ExitFailed
		}
		files = append(files, f)
	}
	from := convert.Product(c.From)
	if c.From == "auto" {
		from = convert.Guess(files[0])
	}
	folder := filepath.Dir(c.Files[0])
	result, err := originalReaders[from].Convert(files, convert.Source{
		Read: func(pattern string) ([]convert.File, error) { return readIncluded(folder, pattern) },
		Path: func(name string) string { return absoluteIn(folder, name) },
		Stat: func(path string) (folder, exists bool) {
			info, err := os.Stat(path)
			return err == nil && info.IsDir(), err == nil
		},
		Env: os.LookupEnv,
	})
	if err != nil {
		fmt.Fprintln(stderr, err)
		return cli.ExitUsage
	}
	for _, n := range result.Notes {
		fmt.Fprintln(stderr, n)
	}
	if _, err := stdout.Write(result.YAML); err != nil {
		fmt.Fprintln(stderr, "penstock:", err)
		return cli.ExitFailed
	}
	if _, err := config.Parse("standard output", result.YAML, rules.Everywhere...); err != nil {
		var errs config.Errors
		errors.As(err, &errs)
		fmt.Fprintf(stderr, "penstock: the result is not valid, which is a defect of penstock convert; please report it:\n%s\n", config.Messages(errs, nil))
		return cli.ExitFailed
	}
	if len(result.Notes) > 0 {
		return exitPartly
	}
	return cli.ExitOK
}

// readOriginal reads one file, or standard input.
func readOriginal(name string) (convert.File, error) {
	in := os.Stdin
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return convert.File{}, err
		}
		defer f.Close()
		if info, err := f.Stat(); err == nil && info.IsDir() {
			return convert.File{}, fmt.Errorf("%s: a folder; allowed: files", name)
		}
		in = f
	}
	text, err := io.ReadAll(io.LimitReader(in, maxOriginal+1))
	return convert.File{Name: name, Text: text}, err
}

// absoluteIn returns the absolute path of a file in a folder; "": it is not known.
func absoluteIn(folder, name string) string {
	if !filepath.IsAbs(name) {
		name = filepath.Join(folder, name)
	}
	name, err := filepath.Abs(name)
	if err != nil {
		return ""
	}
	return name
}

// readIncluded reads the files that an include names.
func readIncluded(folder, pattern string) ([]convert.File, error) {
	if !filepath.IsAbs(pattern) {
		pattern = filepath.Join(folder, pattern)
	}
	names := []string{pattern}
	if strings.ContainsAny(pattern, "*?[") {
		var err error
		if names, err = filepath.Glob(pattern); err != nil {
			return nil, err
		}
	}
	var files []convert.File
	for _, name := range names {
		f, err := readOriginal(name)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	return files, nil
}
