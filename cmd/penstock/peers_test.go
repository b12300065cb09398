package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
)

// One client at a time, with members of weights 1 and 2: the light one is chosen as nginx chooses
// it, and at least a quarter of the time; HAProxy chooses it half of the time.
func TestLeastConnectionsBesidePeers(t *testing.T) {
	need(t, "haproxy", "nginx")
	t.Parallel()
	light, heavy := speak(t, "light"), speak(t, "heavy")
	d := runFile(t, `
listeners: {l: {listen: "tcp://127.0.0.1:0", to: g}}
groups: {g: {balance: least-connections, members: [{to: "{0}"}, {to: "{1}", weight: 2}]}}
`, light.url(), heavy.url())
	ports := [2]string{testnet.Port(t), testnet.Port(t)}
	write := func(name, text string) string {
		file := filepath.Join(d.dir, name)
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return file
	}
	serve(t, "haproxy", "-db", "-f", write("haproxy.cfg", fmt.Sprintf(`
global
  maxconn 100
defaults
  mode tcp
  timeout connect 20s
  timeout client 20s
  timeout server 20s
listen l
  bind 127.0.0.1:%s
  balance leastconn
  server a %s weight 1
  server b %s weight 2
`, ports[0], light.Addr(), heavy.Addr())))
	module := "" // Debian's nginx loads it, others have it built in
	if _, err := os.Stat("/usr/lib/nginx/modules/ngx_stream_module.so"); err == nil {
		module = "load_module /usr/lib/nginx/modules/ngx_stream_module.so;"
	}
	serve(t, "nginx", "-p", d.dir, "-e", filepath.Join(d.dir, "nginx.log"), "-c", write("nginx.conf", fmt.Sprintf(`
daemon off;
master_process off;
pid nginx.pid;
%s
events {}
stream {
  upstream g {
    zone g 64k;
    least_conn;
    server %s weight=1;
    server %s weight=2;
  }
  server { listen 127.0.0.1:%s; proxy_pass g; }
}
`, module, light.Addr(), heavy.Addr(), ports[1])))
	const visits = 150
	share := func(at string) int {
		t.Helper()
		testwait.Until(t, "it listens at "+at, func() bool {
			c, err := net.Dial("tcp", at)
			if err == nil {
				c.Close()
			}
			return err == nil
		})
		n := 0
		for range visits {
			c, err := net.Dial("tcp", at)
			if err != nil {
				t.Fatal(err)
			}
			if name(t, c) == "light" {
				n++
			}
			before := light.open() + heavy.open()
			c.Close()
			testwait.Until(t, "the visit is over", func() bool { return light.open()+heavy.open() < before })
		}
		return n
	}
	ours, haproxy, nginx := share(d.at("l").String()), share("127.0.0.1:"+ports[0]), share("127.0.0.1:"+ports[1])
	t.Logf("of %d: ours %d, HAProxy %d, nginx %d", visits, ours, haproxy, nginx)
	if ours < visits/4 || ours > max(haproxy, nginx)+visits/10 {
		t.Errorf("the light member has %d of %d; with HAProxy %d, with nginx %d", ours, visits, haproxy, nginx)
	}
}

// open returns the number of connections of a speaker.
func (s *speaker) open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}
