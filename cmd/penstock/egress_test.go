package main

import (
	"bytes"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pires/go-proxyproto"

	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
)

// egressWorld is a network of its own, with a name server and two web servers, whose addresses are public ones there.
const egressWorld = `
ip addr add 93.184.216.34/32 dev lo
ip addr add 93.184.216.35/32 dev lo
ip -6 addr add 2606:2800:220:1::34/128 dev lo nodad || true
echo "nameserver 127.0.0.1
search other.test" >/etc/resolv.conf
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout /tmp/key.pem -out /tmp/cert.pem -days 2 -subj /CN=x -addext 'subjectAltName=DNS:*.debian.test,DNS:one.test,DNS:*.slow.test' 2>/dev/null
cat >/tmp/unbound.conf <<'END'
server:
  interface: 127.0.0.1
  do-daemonize: no
  use-syslog: no
  username: ""
  chroot: ""
  directory: "/tmp"
  pidfile: ""
  local-zone: "test." static
  local-data: "a.debian.test. 60 IN A 93.184.216.34"
  local-data: "one.test. 60 IN A 93.184.216.35"
  local-data: "both.debian.test. 60 IN A 93.184.216.40"
  local-data: "both.debian.test. 60 IN AAAA 2606:2800:220:1::34"
  local-data: "metadata.debian.test. 60 IN A 169.254.169.254"
  local-data: "mapped.debian.test. 60 IN AAAA 64:ff9b::a9fe:a9fe"
  local-data: "private.debian.test. 60 IN A 10.0.0.1"
  local-data: "own.debian.test. 60 IN A 93.184.216.36"
  local-data: "rebinding.debian.test. 1 IN A 93.184.216.34"
  local-zone: "slow.test." redirect
  local-data: "slow.test. 1 IN A 93.184.216.34"
  local-data: "short.debian.test.other.test. 60 IN A 93.184.216.34"
remote-control:
  control-enable: yes
  control-interface: /tmp/unbound.sock
  control-use-cert: no
END
cat >/tmp/nginx.conf <<'END'
daemon off;
pid /tmp/nginx.pid;
error_log /tmp/nginx.log;
user root;
events {}
http {
  access_log off;
  client_body_temp_path /tmp/nginx-a; proxy_temp_path /tmp/nginx-b; fastcgi_temp_path /tmp/nginx-c; uwsgi_temp_path /tmp/nginx-d; scgi_temp_path /tmp/nginx-e;
  ssl_certificate /tmp/cert.pem;
  ssl_certificate_key /tmp/key.pem;
  server { listen 93.184.216.34:443 ssl; listen [2606:2800:220:1::34]:443 ssl; location / { return 200 "first: $ssl_server_name at $server_addr\n"; } }
  server { listen 93.184.216.35:443 ssl; location / { return 200 "second: $ssl_server_name\n"; } }
  server { listen 93.184.216.35:80; location / { return 200 "clear: $host\n"; } }
}
END
until_ok() { for i in $(seq 2400); do "$@" >/dev/null 2>&1 && return 0; read -t 0.05 <> <(:) || true; done; echo "in vain: $*"; cat /tmp/log; exit 1; }
ask() { curl -s --cacert /tmp/cert.pem --connect-to ::127.0.0.1:8443 "https://$1/" || echo "$1: nothing"; }
refused() { # NAME REASON
	ask $1
	until_ok grep -q "\"sni\":\"$1\".*\"reason\":\"$2\"" /tmp/access.log
}
unbound -p -c /tmp/unbound.conf >/tmp/unbound.log 2>&1 &
unbound=$!
nginx -c /tmp/nginx.conf &
`

// Clients go to the hosts that they name: real ones, by names of a real name server, in a sandbox that allows no more than that.
func TestEgressByName(t *testing.T) {
	need(t, "unshare", "ip", "unbound", "unbound-control", "nginx", "curl", "openssl", "bash")
	t.Parallel()
	out, err := runApart(t, egressWorld+`
ip addr add 93.184.216.36/32 dev lo
cat >/tmp/penstock.yaml <<'END'
access-log: {to: /tmp/access.log}
admin: {listen: unix:///tmp/admin.sock}
keeper: {}
listeners:
  tls:
    listen: tcp://127.0.0.1:8443
    to: egress
  own: {listen: "tcp://93.184.216.36:443", to: "echo:"}
  clear: {listen: "tcp://127.0.0.1:8080", to: clear}
groups:
  egress:
    destination: {port: 443, allow: ["*.debian.test", one.test], timeout: 1m}
  clear:
    destination: {by: host, port: 80, allow: [one.test], timeout: 1m}
END
penstock check -c /tmp/penstock.yaml
penstock run -c /tmp/penstock.yaml >/tmp/log 2>&1 &
daemon=$!
until_ok curl -s --cacert /tmp/cert.pem --resolve a.debian.test:443:93.184.216.34 https://a.debian.test/
until_ok unbound-control -s /tmp/unbound.sock -c /tmp/unbound.conf status
works() { ask a.debian.test | grep -q first; }
until_ok works
ask a.debian.test
ask A.Debian.Test
ask one.test
ask both.debian.test
curl -s --connect-to ::127.0.0.1:8080 http://one.test/
curl -s --connect-to ::127.0.0.1:8080 http://a.debian.test/ || echo "clear: nothing"
refused metadata.debian.test address-denied
refused mapped.debian.test address-denied
refused private.debian.test address-denied
refused own.debian.test loop
refused none.debian.test name-failed
refused short.debian.test name-failed
refused two.test name-denied
curl -sk https://127.0.0.1:8443/ || echo "no name: nothing"
until_ok grep -q '"reason":"no-name"' /tmp/access.log
ask rebinding.debian.test
unbound-control -s /tmp/unbound.sock -c /tmp/unbound.conf local_data_remove rebinding.debian.test
unbound-control -s /tmp/unbound.sock -c /tmp/unbound.conf local_data rebinding.debian.test 1 IN A 127.0.0.1
rebound() { ask rebinding.debian.test | grep -q nothing; }
until_ok rebound
until_ok grep -q '"sni":"rebinding.debian.test".*"reason":"address-denied"' /tmp/access.log
ask a.debian.test
until_ok grep -q '"member":"tcp://a.debian.test:443".*"upstream":"tcp://93.184.216.34:443"' /tmp/access.log
kill $daemon
wait $daemon || true
grep -o '"held":"[^"]*"' /tmp/log || true
`)
	t.Log(out)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"first: a.debian.test at 93.184.216.34\n", "second: one.test\n", "first: both.debian.test at 2606:2800:220:1::34\n", "clear: one.test\n", "clear: nothing\n", "no name: nothing\n",
		"metadata.debian.test: nothing\n", "mapped.debian.test: nothing\n", "private.debian.test: nothing\n", "own.debian.test: nothing\n", "none.debian.test: nothing\n", "short.debian.test: nothing\n", "two.test: nothing\n",
		"first: rebinding.debian.test at 93.184.216.34\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("it does not say %q", want)
		}
	}
}

// Clients get to the addresses that they connect to, where REDIRECT or TPROXY brings their packets to the relay, whose own are marked.
func TestEgressByOriginalDestination(t *testing.T) {
	need(t, "unshare", "ip", "unbound", "nginx", "curl", "openssl", "bash", "nft", "/usr/bin/python3")
	t.Parallel()
	out, err := runApart(t, egressWorld+`
cat >/tmp/rules.nft <<'END'
table inet t {
	chain redirected {
		type nat hook output priority -100;
		meta mark != 1 tcp dport 443 ip daddr 93.184.216.34 redirect to :8443
		meta mark != 1 tcp dport 443 ip6 daddr 2606:2800:220:1::34 redirect to :8443
		meta mark != 1 tcp dport 443 ip daddr 93.184.216.40 redirect to :8443
		meta mark != 1 tcp dport 80 ip daddr 93.184.216.35 redirect to :8443
	}
	chain sent {
		type route hook output priority mangle;
		meta mark != 1 udp dport 5300 ip daddr 93.184.217.2 meta mark set 2
	}
	chain brought {
		type filter hook prerouting priority mangle;
		meta mark != 1 tcp dport 443 ip daddr 93.184.216.35 tproxy ip to :8444 meta mark set 2
		meta mark 2 udp dport 5300 ip daddr 93.184.217.2 tproxy ip to :5300
	}
}
END
nft -f /tmp/rules.nft || { echo "no nft: $?"; exit 0; }
cat >/tmp/penstock.yaml <<'END'
access-log: {to: /tmp/access.log}
keeper: {}
listeners:
  redirected: {listen: "tcp://0.0.0.0:8443", transparent: true, to: original}
  redirected6: {listen: "tcp://[::]:8443", transparent: true, to: original}
  brought: {listen: "tcp://0.0.0.0:8444", transparent: true, to: original}
  datagrams: {listen: "udp://0.0.0.0:5300", transparent: true, timeouts: {idle: 1s}, to: datagrams}
groups:
  original:
    destination: {by: original, port: 443}
    mark: 1
  datagrams:
    destination: {by: original, port: 5300}
    mark: 1
END
cat >/tmp/datagrams.py <<'END'
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
if len(sys.argv) > 1: # the client takes answers from there only
	s.settimeout(1)
	s.connect(("93.184.217.2", 5300))
	for i in range(50): # a datagram may be lost
		s.send(b"hello")
		try:
			print("datagram:", s.recv(100).decode(), "from %s:%d" % s.getpeername())
			break
		except OSError:
			pass
else:
	s.bind(("93.184.217.2", 5300))
	while True:
		b, who = s.recvfrom(100)
		s.sendto(b, who)
END
unshare -n sh -c "echo >/tmp/apart; until ip link show far; do sleep 0.05; done; ip link set lo up; ip addr add 93.184.217.2/30 dev far; ip link set far up; exec /usr/bin/python3 /tmp/datagrams.py" >/tmp/far 2>&1 &
far=$!
until_ok test -e /tmp/apart
ip link add near type veth peer name far
ip link set far netns $far
ip addr add 93.184.217.1/30 dev near
ip link set near up
ip rule add fwmark 2 lookup 100
ip route add local default dev lo table 100
for f in /proc/sys/net/ipv4/conf/*/rp_filter; do echo 0 >$f; done
penstock check -c /tmp/penstock.yaml
penstock run -c /tmp/penstock.yaml >/tmp/log 2>&1 &
daemon=$!
until_ok test -S /tmp/unbound.sock
ready() { curl -s --cacert /tmp/cert.pem --resolve a.debian.test:443:93.184.216.34 https://a.debian.test/ && grep -q ready /tmp/log; }
until_ok ready
curl -s --cacert /tmp/cert.pem --resolve a.debian.test:443:93.184.216.34 https://a.debian.test/
curl -s --cacert /tmp/cert.pem --resolve "a.debian.test:443:[2606:2800:220:1::34]" https://a.debian.test/
curl -s --cacert /tmp/cert.pem --resolve one.test:443:93.184.216.35 https://one.test/
curl -s http://93.184.216.35/ || echo "port 80: nothing"
curl -sk https://127.0.0.1:8443/ || echo "itself: nothing"
until_ok grep -q '"listener":"redirected",.*"member":"tcp://93.184.216.34:443".*"local":"tcp://93.184.216.34:443","upstream":"tcp://93.184.216.34:443"' /tmp/access.log
until_ok grep -q '"listener":"redirected6",.*"member":"tcp://.2606:2800:220:1::34.:443".*"upstream":"tcp://.2606:2800:220:1::34.:443"' /tmp/access.log
until_ok grep -q '"listener":"brought",.*"member":"tcp://93.184.216.35:443".*"upstream":"tcp://93.184.216.35:443"' /tmp/access.log
/usr/bin/python3 /tmp/datagrams.py client
until_ok grep -q '"listener":"redirected",.*"reason":"name-denied"' /tmp/access.log
until_ok grep -q '"listener":"redirected",.*"reason":"\(address-denied\|loop\|name-denied\)","error":"[^"]*8443' /tmp/access.log
kill $daemon
wait $daemon || true
until_ok grep -q '"listener":"datagrams",.*"member":"udp://93.184.217.2:5300".*"local":"udp://93.184.217.2:5300","upstream":"udp://93.184.217.2:5300"' /tmp/access.log
`)
	t.Log(out)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out, "no nft") {
		t.Skip("this kernel has not what nft needs")
	}
	for _, want := range []string{"datagram: hello from 93.184.217.2:5300\n", "first: a.debian.test at 93.184.216.34\n", "first: a.debian.test at 2606:2800:220:1::34\n", "second: one.test\n", "port 80: nothing\n", "itself: nothing\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("it does not say %q", want)
		}
	}
}

// A flow that is connected goes on when the worker is killed, one that waits for its name when it hands over; and a reload that takes a name
// away ends what its route says.
func TestEgressOutlivesWorker(t *testing.T) {
	need(t, "unshare", "ip", "unbound", "nginx", "curl", "openssl", "bash")
	t.Parallel()
	out, err := runApart(t, egressWorld+`
configure() {
cat >/tmp/penstock.yaml <<END
access-log: {to: /tmp/access.log}
admin: {listen: unix:///tmp/admin.sock}
keeper: {keep-after: 0, healthy-after: 100ms}
listeners:
  tls:
    listen: tcp://127.0.0.1:8443
    to: egress
  clear: {listen: "tcp://127.0.0.1:8080", to: clear, removed: {live-flows: close}}
groups:
  egress:
    destination: {port: 443, allow: ["*.debian.test", "*.slow.test"], timeout: 1m}
  clear:
    destination: {by: host, port: 80, allow: [$1], timeout: 1m}
END
}
configure one.test
penstock run -c /tmp/penstock.yaml >/tmp/log 2>&1 &
daemon=$!
api() { curl -s --unix-socket /tmp/admin.sock http://localhost/$1; }
pid() { api v1/status | grep -o '"pid": *[0-9]*' | head -1 | grep -o '[0-9]*'; }
waits() { api metrics | grep -q '^penstock_name_flows 1'; }
get() { # one more request on descriptor 3
	printf 'GET / HTTP/1.1\r\nHost: one.test\r\n\r\n' >&3
	while IFS= read -r -u 3 line; do case $line in clear:*) echo "$line"; return;; esac; done
	return 1
}
until_ok test -S /tmp/admin.sock
works() { ask a.debian.test | grep -q first; }
until_ok works
exec 3<>/dev/tcp/127.0.0.1/8080
get
worker=$(pid)
kill -STOP $unbound
ask a1.slow.test >/tmp/lost & lost=$!
until_ok waits
kill -KILL $worker
kill -CONT $unbound
another() { [ -n "$(pid)" ] && [ "$(pid)" != $worker ]; }
until_ok another
echo "after the kill: $(get)"
wait $lost
works && echo "new clients after the kill"
for i in 1 2 3 4 5; do # a resolver that does not answer for ten seconds has failed
	kill -STOP $unbound
	ask b$i.slow.test >/tmp/waited & waited=$!
	until_ok waits
	penstock upgrade --admin unix:///tmp/admin.sock >/tmp/upgrade 2>&1
	kill -CONT $unbound
	wait $waited
	grep -q first /tmp/waited && break
done
echo "handed over: $(cat /tmp/waited)"
echo "after the upgrade: $(get)"
api v1/flows | grep -q '"member": *"tcp://one.test:80"' && echo "the flow has its name"
configure other.test
penstock reload --admin unix:///tmp/admin.sock >/tmp/reload
cat <&3 >/dev/null 2>&1 || true # it is reset, or not
echo "removed"
until_ok grep -q '"member":"tcp://one.test:80".*"cause":"removed"' /tmp/access.log
kill $daemon
wait $daemon || true
`)
	t.Log(out)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"clear: one.test\n", "after the kill: clear: one.test\n", "new clients after the kill\n", "handed over: first: b", "after the upgrade: clear: one.test\n", "the flow has its name\n", "removed\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("it does not say %q", want)
		}
	}
}

// Flows that wait for a member of their group go where it leads after a reload that gives it a destination.
func TestEgressInsteadOfMembers(t *testing.T) {
	t.Parallel()
	up, full := speak(t, "named"), speak(t, "member")
	const text = `
listeners:
  in: {listen: "tcp://127.0.0.1:0", proxy-protocol: {from: 127.0.0.1}, to: g}
groups:
  g: `
	d := runFile(t, text+`{members: [{to: "{0}", max-flows: 1}], queue: {size: 4, timeout: 10m}}`, full.url())
	begin := func() net.Conn {
		c := d.to("in")
		if _, err := proxyproto.HeaderProxyFromAddrs(2, c.LocalAddr(), up.Addr()).WriteTo(c); err != nil {
			t.Fatal(err)
		}
		return c
	}
	first := begin()
	if n := name(t, first); n != "member" {
		t.Fatal(n)
	}
	second := begin()
	testwait.Until(t, "the flow is queued", func() bool {
		g, err := d.admin.Group(d.ctx(), "g")
		return err == nil && g.Queue.Flows == 1
	})
	d.write(t, text+"{destination: {by: original, networks: 127.0.0.0/8}}")
	d.reload()
	if n := name(t, second); n != "named" {
		t.Errorf("it went to %s", n)
	}
}

// A flow of datagrams outlives its worker, and what its configuration said of its destination. When nobody is there any more, it ends, and the
// worker goes on.
func TestEgressWithoutDestination(t *testing.T) {
	t.Parallel()
	server, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	text := "listeners: {in: {listen: 'udp://127.0.0.1:0', proxy-protocol: {from: 127.0.0.1}, to: g}}\n"
	k := runKeeper(t, "max-restart-delay: 100ms", text+"groups: {g: {destination: {by: original, networks: [127.0.0.0/8]}}}")
	c := testnet.Dial(t, k.at("in"))
	var b bytes.Buffer
	if _, err := proxyproto.HeaderProxyFromAddrs(2, c.LocalAddr(), server.LocalAddr()).WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	b.WriteString("hello")
	got := make([]byte, 1<<10)
	hears := func() {
		t.Helper()
		c.Write(b.Bytes())
		server.SetReadDeadline(time.Now().Add(patience))
		if n, _, err := server.ReadFrom(got); err != nil || string(got[:n]) != "hello" {
			t.Fatalf("%q, %v", got[:n], err)
		}
	}
	hears()
	k.holds(1)
	k.write(t, text+"groups: {g: {members: ['udp://127.0.0.1:9']}}\nkeeper: {keep-after: 0, healthy-after: 0, max-restart-delay: 100ms}\n")
	k.reload()
	k.end(syscall.SIGKILL)
	k.started(1)
	hears()
	server.Close()
	testwait.Until(t, "the flow ends, as nobody is there", func() bool {
		c.Write(b.Bytes())
		s, err := k.admin.Status(k.ctx())
		return err == nil && (s.Keeper.Last.Number > 1 || k.metric("penstock_flows_ended_total", `cause="upstream-refused"`) > 0)
	})
	if s, err := k.admin.Status(k.ctx()); err != nil || s.Keeper.Last.Number != 1 {
		t.Errorf("the worker has died: %+v, %v", s.Keeper.Last, err)
	}
}

// A reload removes the group of a flow that waits for its name: it goes where its listener leads now.
func TestEgressWaitsThroughReload(t *testing.T) {
	need(t, "unshare", "ip", "unbound", "nginx", "curl", "openssl", "bash")
	t.Parallel()
	out, err := runApart(t, egressWorld+`
configure() {
cat >/tmp/penstock.yaml <<END
admin: {listen: unix:///tmp/admin.sock}
keeper: {}
listeners:
  tls: {listen: "tcp://127.0.0.1:8443", to: $1}
groups:
$2
END
}
configure egress '  egress: {destination: {port: 443, allow: ["*.debian.test", "*.slow.test"], timeout: 1m}}'
penstock run -c /tmp/penstock.yaml >/tmp/log 2>&1 &
daemon=$!
api() { curl -s --unix-socket /tmp/admin.sock http://localhost/$1; }
waits() { api metrics | grep -q '^penstock_name_flows 1'; }
until_ok test -S /tmp/admin.sock
works() { ask a.debian.test | grep -q first; }
until_ok works
for i in 1 2 3 4 5; do # a resolver that does not answer for ten seconds has failed
	configure egress '  egress: {destination: {port: 443, allow: ["*.debian.test", "*.slow.test"], timeout: 1m}}'
	penstock reload --admin unix:///tmp/admin.sock >/tmp/reload
	kill -STOP $unbound
	ask a$i.slow.test >/tmp/waited & waited=$!
	until_ok waits
	configure members '  members: {members: ["tcp://93.184.216.35:443"]}'
	penstock reload --admin unix:///tmp/admin.sock >/tmp/reload
	kill -CONT $unbound
	wait $waited
	grep -q nothing /tmp/waited || break
done
echo "routed again: $(cat /tmp/waited)"
kill $daemon
wait $daemon || true
`)
	t.Log(out)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out, "routed again: second: a") {
		t.Error("it has gone where the configuration no longer leads")
	}
}
