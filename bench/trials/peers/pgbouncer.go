//go:build linux

package main

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/penstock/penstock/bench/internal/trial"
)

// pgbouncer has clients of a pool, whose connections to the database go through the daemon and have a life of 2 to 4 s there.
func pgbouncer(s *setup) error {
	all, _ := filepath.Glob("/usr/lib/postgresql/*/bin") // the pattern is good
	if len(all) == 0 {
		return fmt.Errorf("no PostgreSQL: install Debian's package postgresql")
	}
	bin := all[len(all)-1]
	ready := func(port string) func() error {
		return func() error { return exec.Command(bin+"/pg_isready", "-h", "127.0.0.1", "-p", port).Run() }
	}
	as := func(argv ...string) []string {
		return append([]string{"setpriv", "--reuid", "postgres", "--regid", "postgres", "--init-groups"}, argv...)
	}
	var port, relay string
	if err := trial.Ports(&port, &relay); err != nil {
		return err
	}
	data := filepath.Join(s.Dir, "data")
	for _, argv := range [][]string{
		{"install", "-d", "-o", "postgres", data},
		as(bin+"/initdb", "--auth=trust", "--no-sync", "-D", data),
	} {
		if said, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", argv[len(argv)-1], err, said)
		}
	}
	server, err := s.begin("postgres", as(bin+"/postgres", "-D", data, "-p", port, "-k", data, "-c", "listen_addresses=127.0.0.1")...)
	if err != nil {
		return err
	}
	if err := until("PostgreSQL", server, ready(port)); err != nil {
		return err
	}
	d, err := s.daemon("listeners:\n  db: {listen: \"tcp://127.0.0.1:%s\", to: \"tcp://127.0.0.1:%s\", timeouts: {life: 4s, life-jitter: 2s}}\n", relay, port)
	if err != nil {
		return err
	}
	script, err := s.file("query.sql", "SELECT pg_sleep(0.01);\n")
	if err != nil {
		return err
	}
	for _, lifetime := range []int{3600, 1} {
		var pool string
		if err := trial.Ports(&pool); err != nil {
			return err
		}
		name := fmt.Sprint("server_lifetime=", lifetime)
		file, err := s.file(fmt.Sprint("pool", lifetime, ".ini"), `[databases]
postgres = host=127.0.0.1 port=%s user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %s
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 10
server_lifetime = %d
`, relay, pool, lifetime)
		if err != nil {
			return err
		}
		bouncer, err := s.begin(name, as("pgbouncer", file)...)
		if err != nil {
			return err
		}
		if err := until("PgBouncer", bouncer, ready(pool)); err != nil {
			return err
		}
		before, err := d.Metrics()
		if err != nil {
			return err
		}
		said, err := exec.Command("pgbench", "-n", "-h", "127.0.0.1", "-p", pool, "-U", "postgres", "-c", "20", "-T", "30", "-f", script, "postgres").CombinedOutput()
		if _, exited := err.(*exec.ExitError); err != nil && !exited { // 2: clients failed
			return err
		}
		after, err := d.Metrics()
		if err != nil {
			return err
		}
		ended := after.Sum("penstock_flows_ended_total", "cause")
		for cause, n := range before.Sum("penstock_flows_ended_total", "cause") {
			ended[cause] -= n
		}
		queries := regexp.MustCompile(`actually processed: (\d+)`).FindStringSubmatch(string(said))
		if queries == nil {
			return fmt.Errorf("pgbench: %s", said)
		}
		failed := strings.Count(string(said), " aborted in ")
		s.report(name, queries[1], "queries", failed, "clients-failed", ended["life"], "ended-by-life", ended["end"], "ended-by-the-pool")
		if lifetime == 1 && failed > 0 {
			return fmt.Errorf("%s: %s", name, said)
		}
	}
	return nil
}
