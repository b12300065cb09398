package main

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
)

// A server that lets nobody in without TLS (require_secure_transport) is up: it refuses the user of the check, as it refuses everybody who does
// not begin with TLS. HAProxy says so only where the check has no user.
func TestMySQLCheckWithSecureTransport(t *testing.T) {
	need(t, "mariadbd", "mariadb-install-db", "mariadb", "haproxy")
	t.Parallel()
	dir := shortDir(t)
	data, socket, port := filepath.Join(dir, "data"), filepath.Join(dir, "s"), testnet.Port(t)
	user := []string{}
	if os.Getuid() == 0 {
		user = append(user, "--user=root")
	}
	if out, err := exec.Command("mariadb-install-db", append([]string{"--no-defaults", "--datadir=" + data, "--auth-root-authentication-method=normal", "--skip-test-db"}, user...)...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	serve(t, append([]string{"mariadbd", "--no-defaults", "--datadir=" + data, "--socket=" + socket, "--port=" + port, "--bind-address=127.0.0.1", "--pid-file=" + dir + "/pid", "--require-secure-transport=ON"}, user...)...)
	testwait.Until(t, "the server has a user without a password", func() bool {
		return exec.Command("mariadb", "--no-defaults", "-S", socket, "-u", "root", "-e", "CREATE USER IF NOT EXISTS monitor@'%'").Run() == nil
	})
	if out, err := exec.Command("mariadb", "--no-defaults", "--skip-ssl", "-h", "127.0.0.1", "-P", port, "-u", "monitor", "-e", "SELECT 1").CombinedOutput(); err == nil {
		t.Fatalf("the server lets in who has no TLS: %s", out)
	}
	text := haproxyDefaults + "listen user\n bind {0}\n option mysql-check user monitor\n server s 127.0.0.1:" + port + " check inter 10s fall 1\n" +
		"listen greeting\n bind {1}\n option mysql-check\n server s 127.0.0.1:" + port + " check inter 10s fall 1\n"
	theirs, ours := beside(t, "haproxy.cfg", 2, text, startHAProxy)
	greets := func(at string) bool {
		c, err := net.Dial("tcp", at)
		if err != nil {
			return false
		}
		defer c.Close()
		b := make([]byte, 256)
		n, _ := c.Read(b)
		return strings.Contains(string(b[:n]), "MariaDB")
	}
	testwait.Until(t, "HAProxy takes the server for down where the check has a user", func() bool { return !greets(theirs[0]) })
	for _, at := range []string{theirs[1], ours[0], ours[1]} {
		testwait.Until(t, "the server is up behind "+at, func() bool { return greets(at) })
	}
	// It stays up: the checks do not block this host.
	for range 20 {
		if !greets(ours[0]) {
			t.Fatal("the server is down here")
		}
	}
}
