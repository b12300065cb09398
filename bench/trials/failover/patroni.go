//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/penstock/penstock/bench/internal/proc"
	"github.com/penstock/penstock/bench/internal/trial"
)

// patroni is PostgreSQL with Patroni and an etcd in which its members agree.
type patroni struct {
	ttl          int
	loopWait     int
	retryTimeout int
	synchronous  bool
	protocol     string
	bin          string
}

func (p *patroni) flags(fs *flag.FlagSet) {
	fs.IntVar(&p.ttl, "ttl", 30, "patroni: seconds until a primary that says nothing has lost its place; Patroni's default, and 20 is its least")
	fs.IntVar(&p.loopWait, "loop-wait", 10, "patroni: seconds between two looks of Patroni; its default")
	fs.IntVar(&p.retryTimeout, "retry-timeout", 10, "patroni: seconds that it tries etcd and PostgreSQL again; its default")
	fs.BoolVar(&p.synchronous, "synchronous", false, "patroni: a row is acknowledged when a standby has it")
	fs.StringVar(&p.protocol, "protocol", "etcd", "patroni: how it speaks with etcd: etcd or etcd3; with etcd3, a primary of Patroni 3.0.2 that was stopped takes its place back, and rows are lost")
	fs.StringVar(&p.bin, "postgres", "", "patroni: the folder of PostgreSQL's programs; the newest of Debian's packages unless given")
}

func (p *patroni) begin(c *cluster) error {
	if p.bin == "" {
		all, _ := filepath.Glob("/usr/lib/postgresql/*/bin") // the pattern is good
		if len(all) == 0 {
			return fmt.Errorf("no PostgreSQL: install Debian's package postgresql, or give -postgres")
		}
		p.bin = all[len(all)-1]
	}
	fmt.Fprintf(c.Out, "ttl: %d s\nloop_wait: %d s\nsynchronous: %v\nprotocol: %s\n\n", p.ttl, p.loopWait, p.synchronous, p.protocol)
	var client, peer string
	if err := trial.Ports(&client, &peer); err != nil {
		return err
	}
	dir := filepath.Join(c.Dir, "etcd")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	url, peers := "http://127.0.0.1:"+client, "http://127.0.0.1:"+peer
	etcd := &proc.Process{Dir: dir, Argv: []string{"etcd", "--enable-v2", "--data-dir", filepath.Join(dir, "data"), "--listen-client-urls", url, "--advertise-client-urls", url,
		"--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers, "--initial-cluster", "default=" + peers}}
	c.others = append(c.others, etcd)
	if err := etcd.Begin(); err != nil {
		return err
	}
	for _, m := range c.members {
		file, err := m.file("patroni.yml", "%s", p.config(m, client))
		if err != nil {
			return err
		}
		if err := m.run("postgres", "patroni", file); err != nil {
			return err
		}
	}
	return nil
}

// config is Patroni's example, with ports and folders of its own, and nobody asked for a password.
func (p *patroni) config(m *member, etcd string) string {
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
`, m.name, m.more, etcd, p.ttl, p.loopWait, p.retryTimeout, p.synchronous, m.port, m.Dir, p.bin, p.protocol)
}

// template is what Patroni's documentation and its packages have for HAProxy.
func (p *patroni) template(c *cluster) string {
	return `    option httpchk OPTIONS /primary
    http-check expect status 200
    default-server inter 3s fall 3 rise 2 on-marked-down shutdown-sessions
` + c.servers(func(_ int, m *member) string { return "maxconn 100 check port " + m.more })
}

func (p *patroni) connect(c conn) db { return &sql{&postgres{c}, "SHOW port"} }

// promoted asks Patroni, as the relays' checks do.
func (p *patroni) promoted(c *cluster, m, _ *member) bool { return p.is(c, m, "primary") }

// is asks Patroni whether a member is something.
func (p *patroni) is(c *cluster, m *member, what string) bool {
	r, err := c.http.Get("http://127.0.0.1:" + m.more + "/" + what)
	if err != nil {
		return false
	}
	r.Body.Close()
	return r.StatusCode == http.StatusOK
}

// primary returns the member from which both others replicate; with -synchronous, Patroni has chosen one of these to follow it.
func (p *patroni) primary(c *cluster) (*member, error) {
	primary, err := c.only(func(m *member) bool { return p.promoted(c, m, nil) })
	if err != nil {
		return nil, err
	}
	if _, err := c.only(func(m *member) bool { return p.is(c, m, "synchronous") }); p.synchronous && err != nil {
		return nil, fmt.Errorf("nobody may follow: %w", err)
	}
	n, err := c.ask(primary, "SELECT application_name FROM pg_stat_replication WHERE state = 'streaming'")
	if err == nil && len(n) != len(c.members)-1 {
		err = fmt.Errorf("%s replicates to %d: %v", primary.name, len(n), n)
	}
	return primary, err
}

func (p *patroni) switchover(c *cluster, old *member) error {
	body, _ := json.Marshal(map[string]string{"leader": old.name}) // of strings; it chooses: with -synchronous, only one standby may follow
	slow := http.Client{Timeout: patience}
	defer slow.CloseIdleConnections()
	r, err := slow.Post("http://127.0.0.1:"+old.more+"/switchover", "application/json", bytes.NewReader(body))
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
