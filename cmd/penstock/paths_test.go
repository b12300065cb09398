package main

import (
	"crypto/tls"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/testcerts"
	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
)

// Relative paths start at the folder of the file that has them: at the start, in the sandbox, after a reload that names another
// file, and for the worker after a crash. On standard input they start at the working directory.
func TestRelativePaths(t *testing.T) {
	t.Parallel()
	for _, stdin := range []bool{false, true} {
		dir := shortDir(t)
		conf := filepath.Join(dir, "conf")
		for _, folder := range []string{"conf/certs", "conf/logs", "run"} {
			if err := os.MkdirAll(filepath.Join(dir, folder), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		authority := testcerts.Authority(t, "authority")
		authority.Issue(t, "one.test").Write(t, filepath.Join(conf, "certs"), "one")
		authority.Issue(t, "two.test").Write(t, filepath.Join(conf, "certs"), "two")
		text := func(name, log string) string {
			return "listeners:\n  l: {listen: 'tcp://127.0.0.1:0', tls: {certificates: [{certificate: certs/" + name + ".pem, key: certs/" + name + ".key}]}, to: 'echo:'}\n" +
				"access-log: {to: logs/" + log + "}\nkeeper: {keep-after: 0, healthy-after: 0, max-restart-delay: 100ms}\n"
		}
		k := &kept{configured: &configured{dir: dir, file: filepath.Join(conf, "penstock.yaml")}}
		cmd := exec.Command(binary, "run", "-c", "../conf/penstock.yaml")
		cmd.Dir = filepath.Join(dir, "run")
		if stdin {
			cmd = exec.Command(binary, "run", "-c", "-")
			cmd.Dir = conf
			cmd.Stdin = strings.NewReader(places(dir, text("one", "access.log")+"admin: {listen: \"unix://{dir}/admin.sock\"}\n", nil))
		}
		k.write(t, text("one", "access.log"))
		k.begin(t, cmd)
		k.endWorker(t)
		testwait.Until(t, "the API answers", k.answers)
		greets := func(want string) {
			t.Helper()
			c := tls.Client(testnet.Dial(t, k.at("l")), &tls.Config{RootCAs: authority.Pool(), ServerName: want})
			if err := c.Handshake(); err != nil {
				t.Errorf("%s: %v", want, err)
			}
			c.Close()
		}
		greets("one.test")
		recordsOf(t, filepath.Join(conf, "logs", "access.log"), 1)
		if !stdin {
			k.write(t, text("two", "other.log"))
			k.reload()
			greets("two.test")
			recordsOf(t, filepath.Join(conf, "logs", "other.log"), 1)
		}
		k.end(syscall.SIGKILL)
		k.started(1)
		if stdin {
			greets("one.test")
		} else {
			greets("two.test")
			if out, code := command(t, "check", "-c", k.file, "--print"); code != 0 || !strings.Contains(out, conf+"/certs/two.pem") || !strings.Contains(out, conf+"/logs/other.log") {
				t.Errorf("%d\n%s", code, out)
			}
		}
	}
}
