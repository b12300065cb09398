package convert

import (
	"bytes"
	"errors"
	"flag"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/config"
)

var update = flag.Bool("update", false, "write the golden files")

// originals are the configurations in testdata.
func originals(t testing.TB) []string {
	t.Helper()
	cfg, err1 := filepath.Glob("testdata/*.cfg")
	conf, err2 := filepath.Glob("testdata/*.conf")
	if err1 != nil || err2 != nil || len(cfg) < 3 || len(conf) < 3 {
		t.Fatal(cfg, conf, err1, err2)
	}
	return append(cfg, conf...)
}

// folder reads included files from a folder.
func folder(dir string) Source {
	return Source{Read: func(pattern string) ([]File, error) {
		if strings.Contains(pattern, "..") {
			return nil, os.ErrNotExist
		}
		names, err := filepath.Glob(filepath.Join(dir, pattern))
		if err == nil && len(names) == 0 && !strings.Contains(pattern, "*") {
			err = &os.PathError{Op: "open", Path: pattern, Err: os.ErrNotExist}
		}
		var files []File
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err != nil {
				return nil, err
			}
			files = append(files, File{pattern, text})
		}
		return files, err
	}}
}

// Real configurations: what comes out of them is in testdata, and check accepts it.
func TestGolden(t *testing.T) {
	for _, path := range originals(t) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		f := File{filepath.Base(path), text}
		r, err := Convert(Guess(f), []File{f}, folder("testdata"))
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		valid(t, path, r)
		var notes bytes.Buffer
		for _, n := range r.Notes {
			notes.WriteString(n.String() + "\n")
		}
		base := strings.TrimSuffix(path, filepath.Ext(path))
		for name, got := range map[string][]byte{base + ".yaml": r.YAML, base + ".notes": notes.Bytes()} {
			if *update {
				if err := os.WriteFile(name, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if want, err := os.ReadFile(name); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s: %v; got:\n%s", name, err, got)
			}
		}
	}
}

// valid wants a result that Penstock reads without an error or a warning.
func valid(t testing.TB, name string, r *Result) {
	t.Helper()
	if _, err := config.Parse(name, r.YAML); err != nil {
		t.Errorf("%s: %v\n%s", name, err, r.YAML)
	}
}

// FuzzHAProxy and FuzzNginx: no text makes the converter panic, and whatever it
// converts is a configuration without errors.
func FuzzHAProxy(f *testing.F) { fuzz(f, HAProxy) }

func FuzzNginx(f *testing.F) { fuzz(f, Nginx) }

func fuzz(f *testing.F, from Product) {
	for _, path := range originals(f) {
		text, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		if Guess(File{Name: path}) == from {
			f.Add(text)
		}
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := Convert(from, []File{{"fuzz", text}}, Source{})
		if err != nil {
			var e *Error
			if !errors.As(err, &e) {
				t.Errorf("%T %v", err, err)
			}
			return
		}
		if _, err := config.Parse("fuzz.yaml", r.YAML); err != nil {
			t.Errorf("%v\n%s", err, r.YAML)
		}
		for _, n := range r.Notes {
			if n.Line < 1 || strings.ContainsAny(n.Text, "\n\r") {
				t.Errorf("note %q", n)
			}
		}
	})
}

// Lines of all originals in random order: other combinations than people write,
// and what comes out is a configuration without errors all the same.
func FuzzShuffled(f *testing.F) {
	for seed := range uint64(15) {
		f.Add(seed)
	}
	lines := linesOfOriginals(f)
	f.Fuzz(func(t *testing.T, seed uint64) {
		converted := shuffled(t, rand.New(rand.NewPCG(seed, 0)), lines)
		if converted[HAProxy] < 3 || converted[Nginx] < 3 {
			t.Error(converted)
		}
	})
}

func linesOfOriginals(t testing.TB) map[Product][]string {
	lines := map[Product][]string{}
	for _, path := range originals(t) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		from := Guess(File{Name: path})
		for line := range strings.Lines(string(text)) {
			if !strings.Contains(line, "mode http") && !strings.HasPrefix(line, ".") {
				lines[from] = append(lines[from], line)
			}
		}
	}
	return lines
}

// shuffled converts random lines, and returns how often it could.
func shuffled(t *testing.T, r *rand.Rand, lines map[Product][]string) map[Product]int {
	converted := map[Product]int{}
	for range 50 {
		for _, from := range []Product{HAProxy, Nginx} {
			all := lines[from]
			var text strings.Builder
			text.WriteString(map[Product]string{HAProxy: "listen b1\nserver s 192.0.2.1:1\nbind 127.0.0.1:1\n", Nginx: "stream {\n"}[from])
			for range 10 + r.IntN(60) {
				line := all[r.IntN(len(all))]
				if from == Nginx && strings.Count(line, "{") != strings.Count(line, "}") {
					continue
				}
				text.WriteString(line)
			}
			if from == Nginx {
				text.WriteString("server { listen 1; proxy_pass a; }\nupstream a { server b:1; }\n}\n")
			}
			result, err := Convert(from, []File{{"shuffled", []byte(text.String())}}, folder("testdata"))
			if err != nil {
				continue
			}
			converted[from]++
			if noWarnings(t, result); t.Failed() {
				t.Fatalf("of\n%s", text.String())
			}
			// A directive that nobody knows is listed, wherever it stands.
			unknown := map[Product]string{HAProxy: " zz-unknown\n", Nginx: "zz_unknown 1;\n"}[from]
			with := insert(r, text.String(), unknown, from)
			if result, err = Convert(from, []File{{"shuffled", []byte(with)}}, folder("testdata")); err == nil && !slices.ContainsFunc(result.Notes, func(n Note) bool { return strings.Contains(n.Text, "zz") }) {
				t.Fatalf("zz is not listed: %v\nof\n%s", result.Notes, with)
			}
		}
	}
	return converted
}

// insert adds a line to the first section, or to the block stream, at random.
func insert(r *rand.Rand, text, line string, from Product) string {
	lines := strings.SplitAfter(text, "\n")
	end := 1 // of the first section
	for end < len(lines)-1 && (from == Nginx || !sectionWords[strings.TrimSpace(strings.SplitN(strings.TrimSpace(lines[end])+" ", " ", 2)[0])]) {
		end++
	}
	if from == Nginx {
		end -= 3 // in front of the server, the upstream and the last brace
	}
	return strings.Join(slices.Insert(lines, 1+r.IntN(max(end, 1)), line), "")
}

// Nobody could say whose certificate a member without a host must have.
func TestVerifiedMembersHaveHosts(t *testing.T) {
	nginx := func(server, more string) string {
		return "stream {\nserver { listen 1; proxy_pass a; proxy_ssl on; proxy_ssl_verify on; proxy_ssl_trusted_certificate /ca.pem;\n" + more +
			"}\nupstream a { server " + server + "; }\n}\n"
	}
	haproxy := func(server string) string { return "listen a\nmode tcp\nbind 127.0.0.1:1\n" + server + "\n" }
	for _, c := range []struct {
		from Product
		text string
		has  bool // a group
	}{
		{Nginx, nginx("192.0.2.1:1", "proxy_ssl_name $ssl_server_name;"), true},
		{Nginx, nginx("b.example:1", "proxy_ssl_name $ssl_server_name;"), true},
		{Nginx, nginx("unix:/a", "proxy_ssl_name $ssl_server_name;"), false},
		{Nginx, nginx("b.example service=http resolve", "proxy_ssl_name $ssl_server_name;"), false},
		{Nginx, nginx("unix:/a", "proxy_ssl_name b.example;"), true},
		{Nginx, nginx("unix:/a", ""), true}, // a
		{HAProxy, haproxy("server s 192.0.2.1:1 ssl"), true},
		{HAProxy, haproxy("server s unix@/a ssl"), false},
		{HAProxy, haproxy("server s unix@/a ssl verify none"), true},
		{HAProxy, haproxy("server s unix@/a ssl sni str(b.example)"), true},
		{HAProxy, haproxy("server-template s 2 _http._tcp.b.example resolvers r ssl"), false},
	} {
		r, err := Convert(c.from, []File{{"f", []byte(c.text)}}, Source{})
		if err != nil {
			if c.has {
				t.Errorf("%v of\n%s", err, c.text)
			}
			continue
		}
		if _, err := config.Parse("f.yaml", r.YAML); err != nil {
			t.Errorf("%v\n%s\nof\n%s", err, r.YAML, c.text)
		}
		if has := strings.Contains(string(r.YAML), "    tls:"); has != c.has {
			t.Errorf("%s\n%v\nof\n%s", r.YAML, r.Notes, c.text)
		}
	}
}
