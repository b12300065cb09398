//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/penstock/penstock/bench/internal/proc"
	"github.com/penstock/penstock/internal/testport"
)

// cluster is three members of Patroni and the etcd in which they agree.
type cluster struct {
	etcd    *proc.Process
	members []*member
	free    []func() // ends the reservation of a port
	http    http.Client
}

// member is Patroni with its PostgreSQL: all processes of a namespace of their own, so that they end together, as those of a host do.
type member struct {
	proc.Process
	name     string
	postgres string // the port of PostgreSQL
	rest     string // the port of Patroni
}

func (c *cluster) port() (string, error) {
	port, free, err := testport.Reserve()
	if err == nil {
		c.free = append(c.free, free)
	}
	return port, err
}

// startCluster starts a cluster in a folder and waits until it is whole. The caller must call end, also after an error.
func startCluster(s *settings) (*cluster, error) {
	c := &cluster{http: http.Client{Timeout: 2 * time.Second}}
	if os.Geteuid() != 0 {
		return c, fmt.Errorf("root is needed, for namespaces and for the user postgres")
	}
	who, err := user.Lookup("postgres")
	if err != nil {
		return c, fmt.Errorf("%w; install postgresql, patroni and etcd", err)
	}
	uid, _ := strconv.Atoi(who.Uid)
	gid, _ := strconv.Atoi(who.Gid)
	if err := os.Chmod(s.Dir, 0o711); err != nil { // for the user postgres
		return c, err
	}
	var ports [8]string
	for i := range ports {
		if ports[i], err = c.port(); err != nil {
			return c, err
		}
	}
	dir := filepath.Join(s.Dir, "etcd")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return c, err
	}
	url, peers := "http://127.0.0.1:"+ports[6], "http://127.0.0.1:"+ports[7]
	c.etcd = &proc.Process{Dir: dir, Argv: []string{"etcd", "--enable-v2", "--data-dir", filepath.Join(dir, "data"), "--listen-client-urls", url, "--advertise-client-urls", url,
		"--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers, "--initial-cluster", "default=" + peers}}
	if err := c.etcd.Begin(); err != nil {
		return c, err
	}
	for i := range 3 {
		m := &member{name: fmt.Sprint("m", i+1), postgres: ports[2*i], rest: ports[2*i+1]}
		m.Dir = filepath.Join(s.Dir, m.name)
		file := filepath.Join(m.Dir, "patroni.yml")
		if err := os.Mkdir(m.Dir, 0o700); err != nil {
			return c, err
		}
		if err := os.WriteFile(file, []byte(m.config(s, ports[6])), 0o644); err != nil {
			return c, err
		}
		if err := os.Chown(m.Dir, uid, gid); err != nil {
			return c, err
		}
		m.Argv = []string{"unshare", "--pid", "--fork", "--mount-proc", "setpriv", "--reuid", who.Uid, "--regid", who.Gid, "--clear-groups", "patroni", file}
		c.members = append(c.members, m)
		if err := m.Begin(); err != nil {
			return c, err
		}
	}
	_, err = c.whole()
	return c, err
}

// config is Patroni's example, with ports and folders of its own, and nobody asked for a password.
func (m *member) config(s *settings, etcd string) string {
	return fmt.Sprintf(`scope: trial
name: %[1]s
restapi: {listen: "127.0.0.1:%[2]s", connect_address: "127.0.0.1:%[2]s"}
%[11]s: {host: "127.0.0.1:%[3]s"}
bootstrap:
  dcs: {ttl: %[4]d, loop_wait: %[5]d, retry_timeout: %[6]d, synchronous_mode: %[7]v, postgresql: {use_pg_rewind: true}}
  initdb: [{encoding: UTF8}, data-checksums]
  pg_hba: ["host replication all 127.0.0.1/32 trust", "host all all 127.0.0.1/32 trust"]
postgresql:
  listen: 127.0.0.1:%[8]s
  connect_address: 127.0.0.1:%[8]s
  data_dir: %[9]s/data
  bin_dir: %[10]s
  pgpass: %[9]s/pgpass
  authentication: {replication: {username: replicator, password: x}, superuser: {username: postgres, password: x}, rewind: {username: rewinder, password: x}}
  parameters: {unix_socket_directories: %[9]s}
`, m.name, m.rest, etcd, s.ttl, s.loopWait, s.retryTimeout, s.synchronous, m.postgres, m.Dir, s.bin, s.protocol)
}

// end ends it.
func (c *cluster) end() {
	for _, m := range c.members {
		m.signal(syscall.SIGCONT)
		m.Kill()
	}
	if c.etcd != nil {
		c.etcd.Kill()
	}
	c.http.CloseIdleConnections()
	for _, free := range c.free {
		free()
	}
}

// signal sends a signal to all processes of a member.
func (m *member) signal(sig syscall.Signal) {
	for _, pid := range m.Tree() {
		syscall.Kill(pid, sig)
	}
}

// isPrimary asks Patroni, as the relays' checks do.
func (c *cluster) isPrimary(m *member) bool {
	r, err := c.http.Get("http://127.0.0.1:" + m.rest + "/primary")
	if err != nil {
		return false
	}
	r.Body.Close()
	return r.StatusCode == http.StatusOK
}

// whole waits until there is a primary, from which both others replicate, and returns it.
func (c *cluster) whole() (primary *member, err error) {
	err = proc.Until("a primary and two standbys", patience, 100*time.Millisecond, func() error {
		primary = nil
		var primaries []string
		for _, m := range c.members {
			if err := m.Failed(); err != nil {
				return fmt.Errorf("%s: %w: %s", m.name, err, m.Printed())
			}
			if c.isPrimary(m) {
				primary, primaries = m, append(primaries, m.name)
			}
		}
		if len(primaries) != 1 { // one that was stopped says for a moment that it still is
			return fmt.Errorf("primaries: %q: %s", primaries, c.members[0].Printed())
		}
		db, err := dial("127.0.0.1:"+primary.postgres, time.Second)
		if err != nil {
			return err
		}
		defer db.Close()
		n, err := db.query("SELECT application_name FROM pg_stat_replication WHERE state = 'streaming'")
		if err == nil && len(n) != len(c.members)-1 {
			err = fmt.Errorf("%s replicates to %d: %v", primary.name, len(n), n)
		}
		return err
	})
	return primary, err
}

// promoted waits until another member says that it is primary, and returns it and when it said so.
func (c *cluster) promoted(old *member) (*member, time.Time, error) {
	var next *member
	err := proc.Until("another primary", patience, 20*time.Millisecond, func() error {
		for _, m := range c.members {
			if m != old && c.isPrimary(m) {
				next = m
				return nil
			}
		}
		return fmt.Errorf("none of the others is")
	})
	return next, time.Now(), err
}

// switchover asks Patroni to make another member the primary. That takes as long as it takes.
func (c *cluster) switchover(from, to *member) error {
	body, _ := json.Marshal(map[string]string{"leader": from.name, "candidate": to.name}) // strings
	slow := http.Client{Timeout: patience}
	defer slow.CloseIdleConnections()
	r, err := slow.Post("http://127.0.0.1:"+from.rest+"/switchover", "application/json", bytes.NewReader(body))
	if err != nil {
		return err
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err == nil && r.StatusCode != http.StatusOK {
		err = fmt.Errorf("switchover: %s: %s", r.Status, strings.TrimSpace(string(text)))
	}
	return err
}
