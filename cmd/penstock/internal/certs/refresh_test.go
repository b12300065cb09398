package certs

import (
	"crypto/tls"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// shown returns the number of the certificate that a client is shown.
func shown(t testing.TB, s *Server, name string) int64 {
	t.Helper()
	return handshake(t, s, &tls.Config{ServerName: name, InsecureSkipVerify: true}).serial(t)
}

// A certificate and its key are replaced one after the other. In between the old pair stays; if it stays like that, it is told once.
func TestReplacePair(t *testing.T) {
	dir := t.TempDir()
	root := authority(t, nil, "root")
	one, two, three := sign(t, root, ecKey(), "a.example", nil), sign(t, root, ecKey(), "a.example", nil), sign(t, root, ecKey(), "a.example", nil)
	files := spec.Certificate{Chain: filepath.Join(dir, "a.pem"), Key: filepath.Join(dir, "a.key")}
	put := func(m *made) {
		stage(t, files.Chain, m.chainPEM())
		stage(t, files.Key, m.keyPEM(t))
	}
	put(one)
	rename(t, files.Chain)
	rename(t, files.Key)
	s := open(t, config(files), nil)
	expect := func(m *made) {
		t.Helper()
		if got := shown(t, s, "a.example"); got != m.SerialNumber.Int64() {
			t.Errorf("certificate %d, want %v", got, m.SerialNumber)
		}
	}
	expect(one)
	put(two)
	rename(t, files.Chain)
	if c := quiet(t, s); len(c.Loaded) > 0 {
		t.Errorf("half a pair was loaded: %v", c.Loaded)
	}
	expect(one)
	rename(t, files.Key)
	if c := quiet(t, s); !slices.Equal(c.Loaded, []string{files.Chain}) {
		t.Errorf("loaded %q", c.Loaded)
	}
	expect(two)
	if c := quiet(t, s); len(c.Loaded) > 0 {
		t.Errorf("loaded again: %q", c.Loaded)
	}
	put(three)
	rename(t, files.Key) // in the other order, and then nothing for long
	quiet(t, s)
	if c := s.Refresh(); texts(c.Problems, dir) != "a.pem:1: the key is not that of the certificate of a.example; the key is in a.key:1" {
		t.Error(texts(c.Problems, dir))
	}
	for range 3 {
		quiet(t, s)
	}
	if s.Failures() != 1 || !slices.Equal(s.Failing(), []string{files.Chain}) || !s.Certificates()[0].Failing {
		t.Errorf("%d failures, %q", s.Failures(), s.Failing())
	}
	expect(two)
	rename(t, files.Chain)
	if c := quiet(t, s); len(c.Loaded) != 1 || len(s.Failing()) > 0 {
		t.Errorf("%q, %q", c.Loaded, s.Failing())
	}
	expect(three)
	// A file that is gone, and comes back as it was.
	if err := os.Rename(files.Key, files.Key+".away"); err != nil {
		t.Fatal(err)
	}
	quiet(t, s)
	if c := s.Refresh(); texts(c.Problems, dir) != "a.key: no such file" {
		t.Error(texts(c.Problems, dir))
	}
	expect(three)
	if err := os.Rename(files.Key+".away", files.Key); err != nil {
		t.Fatal(err)
	}
	if c := quiet(t, s); len(c.Loaded) != 1 || len(s.Failing()) > 0 {
		t.Errorf("%q, %q", c.Loaded, s.Failing())
	}
	// A file that was written a moment ago is read again, because it may be written once more within the tick of a clock.
	if err := os.Chtimes(files.Chain, time.Now(), time.Now()); err != nil {
		t.Fatal(err)
	}
	if c := quiet(t, s); len(c.Loaded) > 0 || !s.pairs[0].changed(&s.options) {
		t.Errorf("%q", c.Loaded)
	}
}

// Certificates come to a folder, are replaced there, and leave it. A bad one leaves the others alone.
func TestFolder(t *testing.T) {
	dir := t.TempDir()
	folder := filepath.Join(dir, "certs")
	root := authority(t, nil, "root")
	in := func(name string) string { return filepath.Join(folder, name) }
	newOne := func(name string) *made { return sign(t, root, ecKey(), name, nil) }
	a, b := newOne("a.example"), newOne("b.example")
	write(t, in("a.crt"), a.chainPEM())
	write(t, in("a.key"), a.keyPEM(t))
	write(t, in("a.pem"), []byte("both in one, for another program"))
	write(t, in("notes.txt"), []byte("x"))
	write(t, in(".hidden.pem"), []byte("x"))
	c := config(spec.Certificate{Folder: folder})
	s := open(t, c, nil)
	b.save(t, in("b.pem"))
	touch(t, folder)
	if change := quiet(t, s); !slices.Equal(change.Loaded, []string{in("b.pem")}) {
		t.Errorf("%q", change.Loaded)
	}
	expect := func(name string, m *made) {
		t.Helper()
		if got := shown(t, s, name); got != m.SerialNumber.Int64() {
			t.Errorf("%s: certificate %d, want %v", name, got, m.SerialNumber)
		}
	}
	expect("a.example", a)
	expect("b.example", b)
	write(t, in("c.pem"), []byte("garbage"))
	touch(t, folder)
	quiet(t, s)
	if change := s.Refresh(); texts(change.Problems, folder) != "c.pem: there is no certificate in it; allowed: PEM blocks that begin with -----BEGIN CERTIFICATE-----\nc.pem: there is no private key in it; "+allowedKeys {
		t.Error(texts(change.Problems, folder))
	}
	b2 := newOne("b.example")
	b2.save(t, in("b.pem"))
	touch(t, folder)
	quiet(t, s)
	expect("b.example", b2)
	remove(t, in("b.pem"), in("c.pem"))
	touch(t, folder)
	quiet(t, s) // it may come back
	expect("b.example", b2)
	quiet(t, s)
	expect("b.example", a)
	if len(s.Certificates()) != 1 || len(s.Failing()) > 0 {
		t.Errorf("%+v, %q", s.Certificates(), s.Failing())
	}
	// The last one stays, and a folder that is gone, too.
	remove(t, in("a.crt"), in("a.key"), in("a.pem"))
	touch(t, folder)
	for range 4 {
		s.Refresh()
		expect("a.example", a)
	}
	if err := os.RemoveAll(folder); err != nil {
		t.Fatal(err)
	}
	for range 4 {
		s.Refresh()
		expect("a.example", a)
	}
	if s.Failures() == 0 {
		t.Error("no failure was counted")
	}
	if _, problems := Open(c, Options{}, s); texts(problems, dir) != "certs: no such file" {
		t.Error(texts(problems, dir))
	}
	write(t, in("x.txt"), []byte("x"))
	if _, problems := Open(c, Options{}, s); !strings.HasPrefix(texts(problems, dir), "certs: there are no certificates in it") {
		t.Error(texts(problems, dir))
	}
}

// Mounted secrets and ACME clients replace a link.
func TestReplaceLink(t *testing.T) {
	dir := t.TempDir()
	root := authority(t, nil, "root")
	one, two := sign(t, root, ecKey(), "a.example", nil), sign(t, root, ecKey(), "a.example", nil)
	write(t, filepath.Join(dir, "v1/tls.pem"), one.chainPEM(), one.keyPEM(t))
	write(t, filepath.Join(dir, "v2/tls.pem"), two.chainPEM(), two.keyPEM(t))
	link := func(to string) {
		t.Helper()
		if err := os.Symlink(to, filepath.Join(dir, "data.new")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, "data.new"), filepath.Join(dir, "data")); err != nil {
			t.Fatal(err)
		}
	}
	link("v1")
	s := open(t, config(spec.Certificate{Chain: filepath.Join(dir, "data/tls.pem")}), nil)
	link("v2")
	quiet(t, s)
	if got := shown(t, s, "a.example"); got != two.SerialNumber.Int64() {
		t.Errorf("certificate %d, want %v", got, two.SerialNumber)
	}
}

// While certificates are replaced, no handshake fails, and each gets one that is whole.
func TestReplaceUnderLoad(t *testing.T) {
	dir := t.TempDir()
	root := authority(t, nil, "root")
	path := filepath.Join(dir, "a.pem")
	files := sign(t, root, ecKey(), "a.example", nil).save(t, path)
	s := open(t, config(files), nil)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for done := false; !done; {
				select {
				case <-stop:
					done = true
				default:
				}
				if r := handshake(t, s, &tls.Config{ServerName: "a.example", RootCAs: root.pool()}); r.clientErr != nil || r.serverErr != nil {
					t.Errorf("client: %v; server: %v", r.clientErr, r.serverErr)
					return
				}
			}
		})
	}
	for range 20 {
		sign(t, root, ecKey(), "a.example", nil).save(t, path)
		quiet(t, s)
	}
	close(stop)
	wg.Wait()
}

// The end of a certificate is told in steps, each once.
func TestExpiry(t *testing.T) {
	dir := t.TempDir()
	root := authority(t, nil, "root")
	m := sign(t, root, ecKey(), "a.example", nil)
	now := time.Now()
	s, problems := Open(config(m.save(t, filepath.Join(dir, "a.pem"))), Options{Now: func() time.Time { return now }}, nil)
	if s == nil || len(problems) > 0 {
		t.Fatal(problems)
	}
	for _, c := range []struct {
		days int
		want string
	}{{300, ""}, {335, "expires in 29 days"}, {336, ""}, {358, "expires in 6 days"}, {360, ""}, {364, "expires in 23 hours"}, {366, "has expired"}, {367, ""}} {
		now = m.NotBefore.Add(time.Duration(c.days)*24*time.Hour + 2*time.Hour)
		change := s.Refresh()
		if len(change.Problems) > 1 || (c.want == "") != (len(change.Problems) == 0) || c.want != "" && !strings.Contains(change.Problems[0].Text, c.want) {
			t.Errorf("day %d: %v, want %q", c.days, change.Problems.Warnings(), c.want)
		}
	}
}

// A file that this process may not read is asked for.
func TestAsk(t *testing.T) {
	dir := t.TempDir()
	root := authority(t, nil, "root")
	m := sign(t, root, ecKey(), "a.example", nil)
	folder := filepath.Join(dir, "closed")
	path := filepath.Join(folder, "a.pem")
	m.save(t, path)
	var asked []string
	o := Options{Ask: func(path string) (*os.File, error) {
		asked = append(asked, path)
		return os.Open(strings.Replace(path, "/closed", "/open", 1))
	}}
	if err := os.Rename(folder, filepath.Join(dir, "open")); err != nil {
		t.Fatal(err)
	}
	if f, err := o.open(path); f != nil || !errors.Is(err, fs.ErrNotExist) || len(asked) > 0 {
		t.Errorf("%v, %v, %q", f, err, asked)
	}
	if os.Geteuid() == 0 {
		t.Skip("root may read every file; see TestCertificatesOfRoot in package app")
	}
	if err := os.Mkdir(folder, 0); err != nil {
		t.Fatal(err)
	}
	for _, files := range []spec.Certificate{{Chain: path}, {Folder: folder}} {
		s, problems := Open(config(files), o, nil)
		if s == nil || len(problems) > 0 || len(asked) == 0 {
			t.Errorf("%v, asked for %q", problems, asked)
			continue
		}
		if c := s.Refresh(); len(c.Loaded)+len(c.Problems) > 0 {
			t.Errorf("%+v", c)
		}
	}
}

func touch(t testing.TB, folder string) {
	t.Helper()
	old := time.Now().Add(-time.Minute)
	if err := os.Chtimes(folder, old, old.Add(time.Duration(touches()))); err != nil {
		t.Fatal(err)
	}
}

// touches returns another number with each call: times that differ.
var touches = func() func() int {
	n := 0
	return func() int { n += 1_000_000; return n }
}()

func remove(t testing.TB, paths ...string) {
	t.Helper()
	for _, path := range paths {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}
