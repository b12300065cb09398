//go:build linux

package main

import (
	"bufio"
	"flag"
	"fmt"
	"strings"
	"time"
)

// sentinel is three servers of Redis with a sentinel each.
type sentinel struct {
	downAfter   time.Duration
	minReplicas int
}

func (s *sentinel) flags(fs *flag.FlagSet) {
	fs.DurationVar(&s.downAfter, "down-after", 5*time.Second, "sentinel: until a primary that says nothing is down")
	fs.IntVar(&s.minReplicas, "min-replicas", 0, "sentinel: a primary refuses writes when fewer replicas have said something in the last 2 s")
}

func (s *sentinel) begin(c *cluster) error {
	fmt.Fprintf(c.Out, "down-after: %v\nmin-replicas-to-write: %d\n\n", s.downAfter, s.minReplicas)
	for i, m := range c.members {
		follow := ""
		if i > 0 {
			follow = "replicaof 127.0.0.1 " + c.members[0].port
		}
		server, err := m.file("redis.conf", `bind 127.0.0.1
port %s
dir %s
appendonly yes
repl-diskless-sync-delay 0
min-replicas-to-write %d
min-replicas-max-lag 2
%s
`, m.port, m.Dir, s.minReplicas, follow)
		if err != nil {
			return err
		}
		watch, err := m.file("sentinel.conf", `bind 127.0.0.1
port %s
dir %s
sentinel monitor trial 127.0.0.1 %s 2
sentinel down-after-milliseconds trial %d
sentinel failover-timeout trial 20000
`, m.more, m.Dir, c.members[0].port, s.downAfter.Milliseconds())
		if err != nil {
			return err
		}
		if err := m.run("redis", "sh", "-c", "redis-sentinel "+watch+" & exec redis-server "+server); err != nil {
			return err
		}
	}
	return nil
}

// template is the check of a primary that HAProxy's users have.
func (s *sentinel) template(c *cluster) string {
	return `    option tcp-check
    tcp-check connect
    tcp-check send PING\r\n
    tcp-check expect string +PONG
    tcp-check send info\ replication\r\n
    tcp-check expect string role:master
    tcp-check send QUIT\r\n
    tcp-check expect string +OK
    default-server inter 1s fall 3 rise 2 on-marked-down shutdown-sessions
` + c.servers(func(int, *member) string { return "check" })
}

func (s *sentinel) connect(c conn) db { return &redis{c, bufio.NewReader(c)} }

func (s *sentinel) promoted(c *cluster, m, _ *member) bool {
	said, err := c.ask(m, "INFO replication")
	return err == nil && strings.Contains(said[0], "role:master")
}

// primary returns the member that has two replicas. All sentinels must know of both of the others, and of the same primary.
func (s *sentinel) primary(c *cluster) (*member, error) {
	primary, err := c.only(func(m *member) bool { return s.promoted(c, m, nil) })
	if err != nil {
		return nil, err
	}
	said, err := c.ask(primary, "INFO replication")
	if err == nil && strings.Count(said[0], "state=online") != len(c.members)-1 {
		err = fmt.Errorf("%s: %s", primary.name, said)
	}
	if err != nil {
		return nil, err
	}
	for _, m := range c.members {
		said, err := c.ask(&member{port: m.more}, "INFO sentinel")
		if err != nil {
			return nil, err
		}
		if want := "status=ok,address=127.0.0.1:" + primary.port + ",slaves=2,sentinels=3"; !strings.Contains(said[0], want) {
			return nil, fmt.Errorf("%s: %q instead of %s", m.name, said, want)
		}
	}
	return primary, nil
}

func (s *sentinel) switchover(c *cluster, old *member) error {
	_, err := c.ask(&member{port: old.more}, "SENTINEL FAILOVER trial")
	return err
}
