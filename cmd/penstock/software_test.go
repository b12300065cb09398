package main

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/testcerts"
	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
)

// Real clients and real servers with the relay in between: nothing fails, and if a client does not
// check what it gets, the test does. redis and DNS have their own tests.

// up waits until a server listens.
func up(t *testing.T, what, addr string) {
	t.Helper()
	testwait.Until(t, what+" comes up", func() bool {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
}

// nginx serves files to wrk, over persistent connections and over new ones.
func TestWeb(t *testing.T) {
	need(t, "nginx", "wrk")
	dir, port := t.TempDir(), testnet.Port(t)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	big := make([]byte, 20<<20)
	source := rand.New(rand.NewPCG(1, 2))
	for i := range big {
		big[i] = byte(source.Uint32())
	}
	conf := fmt.Sprintf("daemon off; master_process off; pid %[1]s/pid; error_log %[1]s/error;\nevents { worker_connections 1000; }\n"+
		"http { access_log off; client_body_temp_path %[1]s/a; proxy_temp_path %[1]s/b; fastcgi_temp_path %[1]s/c; uwsgi_temp_path %[1]s/d; scgi_temp_path %[1]s/e;\n"+
		"server { listen 127.0.0.1:%[2]s; root %[1]s; sendfile on; } }\n", dir, port)
	for name, text := range map[string][]byte{"nginx.conf": []byte(conf), "small": []byte("hello\n"), "big": big} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	serve(t, "nginx", "-p", dir, "-e", filepath.Join(dir, "error"), "-c", filepath.Join(dir, "nginx.conf"))
	up(t, "nginx", "127.0.0.1:"+port)
	d := relay(t, "tcp://127.0.0.1:0", "tcp://127.0.0.1:"+port)

	for _, options := range [][]string{nil, {"-H", "Connection: close"}} {
		args := append([]string{"-t1", "-c20", "-d1s", "--timeout", "20s"}, options...)
		var out []byte
		var err error
		testwait.Until(t, "wrk gets an answer in its second", func() bool {
			out, err = exec.Command("wrk", append(args, "http://"+d.addr().String()+"/small")...).CombinedOutput()
			return err != nil || !strings.Contains(string(out), "\n  0 requests in")
		})
		text := string(out)
		if err != nil || strings.Contains(text, "Socket errors") || strings.Contains(text, "Non-2xx") || !regexp.MustCompile(`[1-9]\d* requests in`).MatchString(text) {
			t.Errorf("wrk %v: %v\n%s", args, err, text)
		}
	}
	resp, err := http.Get("http://" + d.addr().String() + "/big")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, resp.Body); err != nil {
		t.Fatal(err)
	}
	if got, want := sum.Sum(nil), sha256.Sum256(big); string(got) != string(want[:]) {
		t.Errorf("the file came as another one: %x, want %x", got, want)
	}
	http.DefaultClient.CloseIdleConnections()
}

// pgbench checks each answer of PostgreSQL, over TCP to a Unix socket.
func TestPostgres(t *testing.T) {
	need(t, "pgbench")
	authority, dir := testcerts.Authority(t, "authority"), shortDir(t)
	cert, key := authority.Issue(t, "db", testcerts.For("a.db.test")).Write(t, dir, "db")
	ca, _ := authority.Write(t, dir, "ca")
	socket, port := postgres(t, cert, key)
	t.Run("checks", func(t *testing.T) {
		d := runFile(t, `
listeners:
  plain: {listen: "tcp://127.0.0.1:0", to: plain}
  secure: {listen: "tcp://127.0.0.1:0", to: secure}
groups:
  plain: {members: ["unix://{0}"], check: {postgres: {every: 200ms, timeout: 60s, user: bench, database: postgres}}}
  secure: {members: [{name: db, to: "tcp://127.0.0.1:{1}"}], tls: {ca: "{2}", verify: false, starttls: postgresql}, check: {postgres: {every: 200ms, timeout: 60s}}}
`, socket, port, ca)
		d.memberIs("plain", "unix://"+socket, "up")
		d.memberIs("secure", "db", "up") // that refuses the user penstock, and so takes clients
	})
	t.Run("TLS", func(t *testing.T) { psql(t, "tcp://127.0.0.1:"+port, cert, key, ca) })
	d := relay(t, "tcp://127.0.0.1:0", "unix://"+socket)
	host, at, err := net.SplitHostPort(d.addr().String())
	if err != nil {
		t.Fatal(err)
	}
	bench := func(args ...string) string {
		t.Helper()
		out, err := exec.Command("pgbench", append([]string{"-h", host, "-p", at, "-U", "bench", "postgres"}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("pgbench %v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	bench("-i", "-q")
	for _, args := range [][]string{{"-c", "8", "-t", "50"}, {"-c", "8", "-t", "20", "-C", "-S"}, {"-c", "4", "-t", "50", "-S", "-M", "prepared"}} {
		if out := bench(args...); !strings.Contains(out, "number of failed transactions: 0") {
			t.Errorf("pgbench %v:\n%s", args, out)
		}
	}
}

// postgres starts a PostgreSQL server and returns the path of its socket and its port, at which it has TLS if there are
// files of a certificate and its key. It takes the user bench without a password.
func postgres(t *testing.T, pem ...string) (socket, port string) {
	t.Helper()
	bin := postgresFolder(t)
	dir, err := os.MkdirTemp("", "pg") // a Unix socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	data := filepath.Join(dir, "data")
	port = testnet.Port(t)
	as := nobody(t, dir)
	own := filepath.Join(dir, "pem") // it insists on a key that is its own
	for _, file := range pem {
		text, err := os.ReadFile(file)
		if err == nil {
			err = appendTo(own, text)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(as) > 0 && len(pem) > 0 {
		if out, err := exec.Command("chown", "--reference", dir, own).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	command := func(tool string, args ...string) *exec.Cmd {
		argv := append(append(slices.Clip(as), filepath.Join(bin, tool)), args...)
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Dir = dir
		return cmd
	}
	if out, err := command("initdb", "-D", data, "-U", "bench", "-A", "trust", "-N").CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v\n%s", err, out)
	}
	args := []string{"-D", data, "-k", dir, "-p", port, "-c", "listen_addresses=", "-c", "fsync=off", "-c", "max_connections=60"}
	if len(pem) > 0 {
		args = append(args, "-c", "listen_addresses=127.0.0.1", "-c", "ssl=on", "-c", "ssl_cert_file="+own, "-c", "ssl_key_file="+own)
	}
	server := command("postgres", args...)
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		server.Process.Signal(os.Interrupt)
		server.Wait()
	})
	testwait.Until(t, "PostgreSQL takes clients", func() bool {
		return exec.Command(filepath.Join(bin, "pg_isready"), "-q", "-h", dir, "-p", port).Run() == nil
	})
	return filepath.Join(dir, ".s.PGSQL."+port), port
}

// appendTo appends to a file that only its owner may read.
func appendTo(file string, text []byte) error {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = f.Write(text)
		err = errors.Join(err, f.Close())
	}
	return err
}

// postgresFolder returns the folder of the newest PostgreSQL's programs, which Debian does not have
// in PATH.
func postgresFolder(t *testing.T) string {
	t.Helper()
	folders, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	for i := len(folders) - 1; i >= 0; i-- {
		if _, err := os.Stat(filepath.Join(folders[i], "postgres")); err == nil {
			return folders[i]
		}
	}
	if _, err := exec.LookPath("initdb"); err != nil {
		t.Skip("postgres is not installed")
	}
	path, err := exec.LookPath("postgres")
	if err != nil {
		t.Skip("postgres is not installed")
	}
	return filepath.Dir(path)
}

// nobody returns the attributes with which root runs a program that refuses root, and gives the
// folder to that user; nil if this process is not root.
func nobody(t *testing.T, dir string) []string {
	t.Helper()
	if os.Getuid() != 0 {
		return nil
	}
	need(t, "setpriv")
	u, err := user.Lookup("nobody")
	if err != nil {
		t.Skip(err)
	}
	uid, _ := strconv.Atoi(u.Uid)
	gid, _ := strconv.Atoi(u.Gid)
	if err := os.Chown(dir, uid, gid); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return []string{"setpriv", "--reuid", u.Uid, "--regid", u.Gid, "--clear-groups", "--"}
}

// iperf3 sends in both directions, on one connection and on four. It does not count data in flight
// when it stops as received, which on a busy machine can be all of it.
func TestIperf(t *testing.T) {
	need(t, "iperf3")
	size := "64M"
	if testnet.RaceEnabled {
		size = "16M"
	}
	for _, args := range [][]string{{}, {"-R"}, {"-P", "4"}} {
		d := relay(t, "tcp://127.0.0.1:0", "tcp://127.0.0.1:"+iperf(t))
		host, at, err := net.SplitHostPort(d.addr().String())
		if err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command("iperf3", append([]string{"-c", host, "-p", at, "-n", size, "-J"}, args...)...).Output()
		var report struct {
			Error string
			End   struct {
				Sent struct{ Bytes int64 } `json:"sum_sent"`
			}
		}
		if json.Unmarshal(out, &report) != nil || err != nil || report.Error != "" || report.End.Sent.Bytes == 0 {
			t.Errorf("iperf3 %v: %v, %+v\n%.500s", args, err, report, out)
			continue
		}
		d.signal(syscall.SIGTERM)
		d.mustExit(0)
		if moved := d.line("ended")["bytes"].(float64); moved < 64<<10 {
			t.Errorf("iperf3 %v: %.0f bytes were relayed", args, moved)
		}
	}
}
