//go:build linux

package main

import (
	"cmp"
	"fmt"
	"net/http"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/penstock/penstock/bench/internal/proc"
	"github.com/penstock/penstock/bench/internal/trial"
)

// kind is what differs between the clusters.
type kind interface {
	// begin begins the members, and what else they need.
	begin(c *cluster) error
	// template returns what HAProxy's documentation or the cluster's has for it: a listen section without bind.
	template(c *cluster) string
	// connect returns a connection to a server, over one that was just made.
	connect(conn) db
	// primary returns the member that takes writes. Unless all members are whole, it returns an error.
	primary(c *cluster) (*member, error)
	// promoted reports whether a member says that it takes writes without the old primary.
	promoted(c *cluster, m, old *member) bool
	// switchover makes another member the primary, as planned. That takes as long as it takes.
	switchover(c *cluster, old *member) error
}

// cluster is three members of a database.
type cluster struct {
	kind
	*settings
	name    string
	members []*member
	others  []*proc.Process
	http    http.Client
}

// member is a server with what watches it: all processes of a namespace of their own, so that they end together, as those of a host do.
type member struct {
	proc.Process
	name string
	port string // of the server
	more string // another port, and the next one after it
	last string // see more
}

// begin starts a cluster and waits until it is whole. The caller must call end, also after an error.
func (c *cluster) begin() error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("root is needed, for namespaces and for the users of servers")
	}
	if err := os.Chmod(c.Dir, 0o711); err != nil { // for these users
		return err
	}
	for i := range 3 {
		m := &member{name: fmt.Sprint("m", i+1)}
		if err := trial.Ports(&m.port, &m.more, &m.last); err != nil {
			return err
		}
		m.Dir = filepath.Join(c.Dir, m.name)
		if err := os.Mkdir(m.Dir, 0o755); err != nil {
			return err
		}
		c.members = append(c.members, m)
	}
	if err := c.kind.begin(c); err != nil {
		return err
	}
	primary, err := c.whole()
	if err != nil {
		return err
	}
	server, err := c.dial(primary, time.Minute)
	if err != nil {
		return err
	}
	defer server.Close()
	return server.create()
}

// run begins a member with a command, as a user who owns its folder.
func (m *member) run(user string, argv ...string) error {
	if err := chown(m.Dir, user); err != nil {
		return err
	}
	m.Argv = append([]string{"unshare", "--pid", "--fork", "--mount-proc", "setpriv", "--reuid", user, "--regid", user, "--init-groups"}, argv...)
	return m.Begin()
}

// file writes a file into its folder and returns the path.
func (m *member) file(name, format string, args ...any) (path string, err error) {
	path = filepath.Join(m.Dir, name)
	return path, os.WriteFile(path, fmt.Appendf(nil, format, args...), 0o644)
}

// end ends it.
func (c *cluster) end() {
	for _, m := range c.members {
		m.signal(syscall.SIGCONT)
		m.Kill()
	}
	for _, p := range c.others {
		p.Kill()
	}
	c.http.CloseIdleConnections()
}

// signal sends a signal to all processes of a member.
func (m *member) signal(sig syscall.Signal) {
	for _, pid := range m.Tree() {
		syscall.Kill(pid, sig)
	}
}

// recover starts what has ended, and continues what was stopped.
func (m *member) recover() error {
	if m.Over() {
		return m.Begin()
	}
	m.signal(syscall.SIGCONT)
	return nil
}

// whole waits until all members are whole, and returns the primary.
func (c *cluster) whole() (primary *member, err error) {
	err = proc.Until("a cluster that is whole", patience, 100*time.Millisecond, func() (err error) {
		for _, m := range c.members {
			if err := m.Failed(); err != nil {
				return fmt.Errorf("%s: %w: %s", m.name, err, m.Printed())
			}
		}
		primary, err = c.primary(c)
		return err
	})
	return primary, err
}

// waitPromoted waits until another member takes writes, and returns when it said so.
func (c *cluster) waitPromoted(old *member) (time.Time, error) {
	err := proc.Wait("another primary", patience, func() bool {
		for _, m := range c.members {
			if m != old && c.promoted(c, m, old) {
				return true
			}
		}
		time.Sleep(20 * time.Millisecond)
		return false
	})
	return time.Now(), err
}

// servers returns the lines of HAProxy for the members. suffix: what follows the address of each.
func (c *cluster) servers(suffix func(i int, m *member) string) string {
	var b strings.Builder
	for i, m := range c.members {
		fmt.Fprintf(&b, "    server %s 127.0.0.1:%s %s\n", m.name, m.port, suffix(i, m))
	}
	return b.String()
}

// only returns the only member of which something holds: one that was stopped says for a moment that it still is the primary.
func (c *cluster) only(holds func(*member) bool) (*member, error) {
	var all []*member
	var names []string
	for _, m := range c.members {
		if holds(m) {
			all, names = append(all, m), append(names, m.name)
		}
	}
	if len(all) != 1 {
		return nil, fmt.Errorf("primaries: %q: %s", names, c.members[0].Printed())
	}
	return all[0], nil
}

// chown gives a folder and what is in it to a user.
func chown(dir, name string) error {
	who, err := user.Lookup(name)
	if err != nil {
		return fmt.Errorf("%w; install the cluster's packages", err)
	}
	uid, _ := strconv.Atoi(who.Uid) // on Linux, they are numbers
	gid, _ := strconv.Atoi(who.Gid)
	return filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		return cmp.Or(err, os.Lchown(path, uid, gid))
	})
}
