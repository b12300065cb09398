//go:build linux

package main

import (
	"fmt"
	"os/exec"
	"strings"

	"github.com/penstock/penstock/bench/internal/proc"
	"github.com/penstock/penstock/bench/internal/trial"
)

// galera is three servers of MariaDB with Galera, each of which would take writes; the relays have one of them write.
type galera struct{}

func (g *galera) begin(c *cluster) error {
	fmt.Fprintln(c.Out)
	var all []string
	for _, m := range c.members {
		all = append(all, "127.0.0.1:"+m.more)
	}
	for i, m := range c.members {
		var ist string
		if err := trial.Ports(&ist); err != nil {
			return err
		}
		file, err := m.file("my.cnf", `[mariadbd]
port = %[1]s
bind-address = 127.0.0.1
socket = %[2]s/socket
pid-file = %[2]s/pid
datadir = %[2]s/data
log-error = %[2]s/error.log
innodb_buffer_pool_size = 32M
innodb_log_file_size = 16M
innodb_autoinc_lock_mode = 2
binlog_format = ROW
wsrep_on = ON
wsrep_provider = /usr/lib/galera/libgalera_smm.so
wsrep_cluster_name = trial
wsrep_cluster_address = gcomm://%[3]s
wsrep_node_name = %[4]s
wsrep_node_address = 127.0.0.1:%[5]s
wsrep_sst_method = rsync
wsrep_sst_receive_address = 127.0.0.1:%[6]s
wsrep_provider_options = "gmcast.listen_addr=tcp://127.0.0.1:%[5]s;ist.recv_addr=127.0.0.1:%[7]s;gcache.size=16M"
`, m.port, m.Dir, strings.Join(all, ","), m.name, m.more, m.last, ist)
		if err != nil {
			return err
		}
		if err := chown(m.Dir, "mysql"); err != nil {
			return err
		}
		install := exec.Command("mariadb-install-db", "--no-defaults", "--user=mysql", "--auth-root-authentication-method=normal", "--datadir="+m.Dir+"/data")
		if said, err := install.CombinedOutput(); err != nil {
			return fmt.Errorf("mariadb-install-db: %w: %s", err, said)
		}
		// This script finds out first where the server had ended, as Debian's unit does.
		start := []string{"mariadbd-safe", "--defaults-file=" + file, "--skip-syslog"}
		if i > 0 {
			if err := m.run("mysql", start...); err != nil {
				return err
			}
			continue
		}
		if err := m.run("mysql", append(start, "--wsrep-new-cluster")...); err != nil {
			return err
		}
		m.Argv = m.Argv[:len(m.Argv)-1] // only for the first start of the first one
	}
	return nil
}

// template has one server that writes, as long as it is there.
func (g *galera) template(c *cluster) string {
	return `    option mysql-check user haproxy
    default-server inter 1s fall 3 rise 2 on-marked-down shutdown-sessions
` + c.servers(func(i int, _ *member) string { return "check" + map[bool]string{true: " backup"}[i > 0] })
}

func (g *galera) connect(c conn) db { return &galeraServer{sql{&mariadb{conn: c}, "SELECT @@port"}} }

// galeraServer is a server that may not have applied yet what another one has acknowledged.
type galeraServer struct{ sql }

// rows waits until the server has applied what the cluster has acknowledged. Otherwise a row that was written a moment ago would be missing.
func (g *galeraServer) rows(writer string) ([]string, error) {
	if _, err := g.ask("SET SESSION wsrep_sync_wait = 1"); err != nil {
		return nil, err
	}
	return g.sql.rows(writer)
}

// promoted reports whether a member is synced in a cluster of the others.
func (g *galera) promoted(c *cluster, m, old *member) bool {
	return g.synced(c, m, len(c.members)-1) == nil
}

// synced returns an error unless a member is synced in a cluster of so many.
func (g *galera) synced(c *cluster, m *member, members int) error {
	said, err := c.ask(m, "SELECT variable_value FROM information_schema.global_status WHERE variable_name IN ('wsrep_cluster_size', 'wsrep_cluster_status', 'wsrep_local_state_comment') ORDER BY variable_name")
	if want := fmt.Sprintf("[%d Primary Synced]", members); err == nil && fmt.Sprint(said) != want {
		err = fmt.Errorf("%s: %v instead of %s", m.name, said, want)
	}
	return err
}

// primary returns the member to which the relays send everybody.
func (g *galera) primary(c *cluster) (*member, error) {
	for _, m := range c.members {
		if err := g.synced(c, m, len(c.members)); err != nil {
			return nil, err
		}
	}
	return c.members[0], nil
}

func (g *galera) switchover(c *cluster, old *member) error {
	if _, err := c.ask(old, "SHUTDOWN"); err != nil {
		return err
	}
	return proc.Wait("the end of "+old.name, patience, old.Over)
}
