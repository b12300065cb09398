package config

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// A relative path starts at the folder of the file that has it, wherever the process runs.
func TestRelativePaths(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"conf/main.yaml": "include: ../more/*.yaml\naccess-log: {to: logs/access.log}\nadmin: {listen: \"tcp://127.0.0.1:1\", token-file: token}\n" +
			"registries: {c: {consul: \"https://c.example:1\", token-file: ./token, tls: {ca: ../ca.pem}}, k: {kubernetes: kube/config}}\n",
		"more/web.yaml":  "listeners:\n  web: {listen: \"tcp://:1\", tls: {certificates: [{folder: certs}], clients: {ca: /etc/ca.pem, crl: crl.pem}, tickets: {keys: keys}}, to: g}\ngroups:\n  g: {members: [\"tcp://m:1\"], tls: {certificate: \"${NAME_OF_A_FILE}.pem\"}}\n",
		"over/over.yaml": "groups: {g: {tls: {key: key.pem}}}\n",
		"conf/token":     strings.Repeat("t", 20),
	} {
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("NAME_OF_A_FILE", "own")
	t.Chdir(filepath.Join(dir, "more"))
	load := func(paths ...string) *spec.Config {
		t.Helper()
		c, _, err := (&Source{Paths: paths}).Load()
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	pathsOf := func(c *spec.Config) []string {
		list := []string{c.AccessLog.To, c.Admin.TokenFiles[0]}
		for _, r := range c.Registries {
			list = append(list, r.TokenFile, r.CA)
			if r.Kind == "kubernetes" {
				list = append(list, r.Servers)
			}
		}
		l, g := c.Listeners[0].TLS, c.Groups[0].TLS
		return append(list, l.Certificates[0].Folder, l.Clients.CA, l.Clients.CRL, l.Tickets.Keys, g.Cert, g.Key)
	}
	want := []string{"conf/logs/access.log", "conf/token", "conf/token", "ca.pem", "", "", "conf/kube/config", "more/certs", "/etc/ca.pem", "more/crl.pem", "more/keys", "more/own.pem", "over/key.pem"}
	for i, path := range want {
		if path != "" && path[0] != '/' {
			want[i] = filepath.Join(dir, path)
		}
	}
	for _, main := range []string{"../conf/main.yaml", filepath.Join(dir, "conf", "main.yaml")} {
		c := load(main, "../over/over.yaml")
		if got := pathsOf(c); !reflect.DeepEqual(got, want) {
			t.Errorf("got  %q\nwant %q", got, want)
		}
		// The text of the whole is the same configuration everywhere.
		t.Chdir("/")
		again, err := Parse("text", c.Text)
		if err != nil {
			t.Fatal(err)
		}
		if got := pathsOf(again); !reflect.DeepEqual(got, want) {
			t.Errorf("of the text: got  %q\nwant %q", got, want)
		}
		t.Chdir(filepath.Join(dir, "more"))
		// As it is written, paths and variables are those of the files.
		if text := string(c.Written); !strings.Contains(text, "logs/access.log") || strings.Contains(text, dir) || !strings.Contains(text, "${NAME_OF_A_FILE}.pem") {
			t.Errorf("%s", text)
		}
	}
	// A file alone is written as it was, and its text has absolute paths.
	file := filepath.Join(dir, "alone.yaml")
	alone := "# a comment\nlisteners: {l: {listen: \"tcp://:1\", to: \"echo:\"}}\naccess-log: {to: access.log}\n"
	if err := os.WriteFile(file, []byte(alone), 0o644); err != nil {
		t.Fatal(err)
	}
	if c := load(file); string(c.Written) != alone || !strings.Contains(string(c.Text), "to: "+dir+"/access.log") {
		t.Errorf("%s\n%s", c.Written, c.Text)
	}
	// Where there is no folder, a relative path is an error.
	for _, name := range []string{"access-log: {to: access.log}", "access-log: {to: ./a/b}", "admin: {listen: \"tcp://127.0.0.1:1\", token-file: token}", "registries: {k: {kubernetes: config}}"} {
		_, err := Parse("text", []byte("listeners: {l: {listen: \"tcp://:1\", to: \"echo:\"}}\n"+name+"\n"))
		if err == nil || !strings.Contains(err.Error(), "is a relative path, and this text is in no folder; allowed: an absolute path") {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A word that was mistyped is no path.
	for value, want := range map[string]string{"stdot": "did you mean stdout?", "tcp://a:1": "invalid log target", "syslogg:a:1": "invalid log target", "logs/": "invalid log target"} {
		if _, err := Parse("text", []byte("listeners: {l: {listen: \"tcp://:1\", to: \"echo:\"}}\naccess-log: {to: \""+value+"\"}\n")); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", value, err)
		}
	}
}

// Standard input is in the folder of the process, a text in a registry in none.
func TestRelativePathsWithoutAFile(t *testing.T) {
	t.Chdir(t.TempDir())
	folder, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	const text = "listeners: {l: {listen: \"tcp://:1\", to: \"echo:\"}}\naccess-log: {to: access.log}\n"
	s := &Source{Paths: []string{Stdin}, kept: map[string][]byte{Stdin: []byte(text)}}
	if c, _, err := s.Load(); err != nil || c.AccessLog.To != filepath.Join(folder, "access.log") {
		t.Errorf("%+v, %v", c, err)
	}
	s = &Source{Paths: []string{"etcd://127.0.0.1:1/k"}, Remote: func(string) (spec.Layer, error) { return spec.Layer{Text: []byte(text)}, nil }}
	if _, _, err := s.Load(); err == nil || !strings.Contains(err.Error(), "etcd://127.0.0.1:1/k:2:18: access-log.to: access.log is a relative path, and this text is in no folder") {
		t.Errorf("%v", err)
	}
}
