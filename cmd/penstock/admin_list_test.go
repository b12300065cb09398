package main

import (
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
)

// The admin listener serves on each of its addresses: commands at a Unix socket, Prometheus at a port. That stays so when the worker dies,
// and at an upgrade; a reload adds and removes addresses.
func TestAdminAddresses(t *testing.T) {
	t.Parallel()
	tokens := t.TempDir()
	all, read := filepath.Join(tokens, "all"), filepath.Join(tokens, "read")
	for path, token := range map[string]string{all: "full-0123456789abcdef", read: "read-0123456789abcdef"} {
		if err := os.WriteFile(path, []byte(token), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	port := testnet.Port(t)
	with := func(list string) string {
		return `listeners: {tcp: {listen: "tcp://127.0.0.1:0", to: "echo:"}}
admin: {listen: [` + list + `], token-file: "{0}", read-token-file: "{1}"}`
	}
	const (
		unix, other = `"unix://{dir}/admin.sock"`, `"unix://{dir}/other.sock"`
		keeps       = "max-restart-delay: 100ms"
	)
	tcp := `"tcp://127.0.0.1:` + port + `"`
	k := runKeeper(t, keeps, with(tcp+", "+unix), all, read)
	both := func() {
		t.Helper()
		if code, out := k.command("status"); code != 0 {
			t.Errorf("at the Unix socket: %s", out)
		}
		for token, want := range map[string]int{"read-0123456789abcdef": http.StatusOK, "none": http.StatusUnauthorized} {
			r, err := http.NewRequestWithContext(k.ctx(), "GET", "http://127.0.0.1:"+port+"/metrics", nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Authorization", "Bearer "+token)
			r.Close = true
			answer, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			answer.Body.Close()
			if answer.StatusCode != want {
				t.Errorf("at the port, with the token %s: %s", token, answer.Status)
			}
		}
	}
	both()
	k.crash()
	both()
	k.upgrade()
	both()

	reload := func(list string) {
		t.Helper()
		k.write(t, with(list)+"\nkeeper: {keep-after: 0, healthy-after: 0, "+keeps+"}\n", all, read)
		k.replaced(func(int) {
			if code, out := k.command("reload"); code != 0 {
				t.Fatal(out)
			}
		})
	}
	// What the next worker could not have is refused, and not missed later.
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	k.write(t, with(unix+`, "tcp://`+taken.Addr().String()+`"`)+"\nkeeper: {keep-after: 0, healthy-after: 0, "+keeps+"}\n", all, read)
	if code, out := k.command("reload"); code == 0 || !strings.Contains(out, "admin.listen: listen tcp "+taken.Addr().String()+": bind: address already in use") {
		t.Errorf("%d, %s", code, out)
	}
	reload(unix + ", " + other)
	if c, err := net.Dial("unix", k.dir+"/other.sock"); err != nil {
		t.Error(err)
	} else {
		c.Close()
	}
	testwait.Until(t, "nothing listens on the port", func() bool {
		c, err := net.Dial("tcp", "127.0.0.1:"+port)
		if err == nil {
			c.Close()
		}
		return err != nil
	})
	reload(unix)
	testwait.Until(t, "the other socket is gone", func() bool {
		_, err := os.Stat(k.dir + "/other.sock")
		return os.IsNotExist(err)
	})
}
