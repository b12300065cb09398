package main

import (
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testnet"
)

// Real DNS servers that are told by PROXY headers who asks. Each answers the question for client.test with an address that depends
// on the client's: 127.9.0.1 and 127.9.0.2 are told their own, and ::1 is told 127.9.0.6.

// proxyDNS starts a DNS server that expects PROXY headers on a port of 127.0.0.1, by program.
var proxyDNS = map[string]func(t *testing.T, dir, port string){
	"unbound": func(t *testing.T, dir, port string) {
		conf := "server:\n  interface: 127.0.0.1@" + port + "\n  proxy-protocol-port: " + port + "\n  do-daemonize: no\n  chroot: \"\"\n  username: \"\"\n  directory: \"" + dir + "\"\n" +
			"  pidfile: \"\"\n  use-syslog: no\n  logfile: \"" + filepath.Join(dir, "log") + "\"\n  access-control: 127.0.0.0/8 allow\n  access-control: ::1/128 allow\n" +
			"  access-control-view: 127.9.0.1/32 a\n  access-control-view: 127.9.0.2/32 b\n  access-control-view: ::1/128 c\n" +
			"  local-zone: \"health.test.\" static\nremote-control:\n  control-enable: no\n"
		for view, ip := range map[string]string{"a": "127.9.0.1", "b": "127.9.0.2", "c": "127.9.0.6"} {
			conf += "view:\n  name: \"" + view + "\"\n  local-data: \"client.test. A " + ip + "\"\n"
		}
		serve(t, "unbound", "-c", writeConf(t, dir, "conf", conf))
	},
	"pdns_recursor": func(t *testing.T, dir, port string) {
		lua := writeConf(t, dir, "lua", "function preresolve(dq)\n  local ip = dq.remoteaddr:toString()\n  if ip == '::1' then ip = '127.9.0.6' end\n  dq.variable = true\n  dq:addAnswer(pdns.A, ip)\n  return true\nend\n")
		serve(t, "pdns_recursor", "--config-dir="+dir, "--daemon=no", "--local-address=127.0.0.1", "--local-port="+port, "--socket-dir="+dir, "--proxy-protocol-from=127.0.0.0/8",
			"--allow-from=127.0.0.0/8,::1/128", "--lua-dns-script="+lua, "--disable-packetcache=yes", "--webserver=no", "--hint-file=no", "--security-poll-suffix=", "--write-pid=no", "--threads=1", "--setuid=", "--setgid=")
	},
	"dnsdist": func(t *testing.T, dir, port string) {
		serve(t, "dnsdist", "--supervised", "--disable-syslog", "-C", writeConf(t, dir, "conf", `setLocal("127.0.0.1:`+port+`")
setACL({"127.0.0.0/8", "::1/128"})
setProxyProtocolACL({"127.0.0.0/8"})
setSecurityPollSuffix("")
newServer({address="127.0.0.1:1", healthCheckMode="up"})
addAction(AllRule(), LuaAction(function(dq)
  local ip = dq.remoteaddr:toString()
  if ip == "::1" then ip = "127.9.0.6" end
  return DNSAction.Spoof, ip
end))
`))
	},
	"kresd": func(t *testing.T, dir, port string) {
		serve(t, "kresd", "-n", "-c", writeConf(t, dir, "conf", `net.listen('127.0.0.1', `+port+`, { kind = 'dns' })
net.proxy_allowed('127.0.0.0/8')
modules.unload('ta_update')
modules.unload('ta_signal_query')
modules.unload('priming')
modules.unload('detect_time_skew')
trust_anchors.remove('.')
modules = { 'view', 'policy' }
for from, ip in pairs({ ['127.9.0.1/32'] = '127.9.0.1', ['127.9.0.2/32'] = '127.9.0.2', ['::1/128'] = '127.9.0.6', ['127.0.0.1/32'] = '127.9.0.9' }) do
  view:addr(from, policy.all(policy.ANSWER({ [kres.type.A] = { rdata = kres.str2ip(ip), ttl = 60 } })))
end
cache.size = 10 * MB
`), dir)
	},
}

func writeConf(t *testing.T, dir, name, text string) string {
	t.Helper()
	file := filepath.Join(dir, name)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// Servers of DNS learn who asks, from the header in front of each datagram, also if a client asks many questions at once. Checks get
// answers, too, without a client's address.
func TestProxyProtocolDNS(t *testing.T) {
	for program, start := range proxyDNS {
		t.Run(program, func(t *testing.T) {
			need(t, program)
			port := testnet.Port(t)
			start(t, shortDir(t), port)
			d := runFile(t, `
listeners:
  v4: {listen: "udp://127.0.0.1:0", to: servers}
  v6: {listen: "udp://[::1]:0", to: servers}
groups:
  servers:
    members: [{name: server, to: "udp://127.0.0.1:{0}"}]
    proxy-protocol: v2
    check: {udp: {every: 5s, timeout: 5s, send: "hex:505301000001000000000000066865616c746804746573740000010001", expect: "hex:5053"}}
`, port)
			d.memberIs("servers", "server", "up")
			for _, c := range []struct{ listener, client, told string }{
				{"v4", "127.9.0.1", "127.9.0.1"}, {"v4", "127.9.0.2", "127.9.0.2"}, {"v6", "::1", "127.9.0.6"},
			} {
				mustBeTold(t, d.at(c.listener), c.client, c.told, 100)
			}
		})
	}
}

// mustBeTold has a client ask n times at once for client.test, and wants each question answered with an address.
func mustBeTold(t *testing.T, at net.Addr, client, told string, n int) {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.UDPAddr{IP: net.ParseIP(client)}}
	c, err := d.Dial("udp", at.String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for id := range n {
		question := append([]byte{byte(id >> 8), byte(id)}, "\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x06client\x04test\x00\x00\x01\x00\x01"...)
		if _, err := c.Write(question); err != nil {
			t.Fatal(err)
		}
	}
	c.SetReadDeadline(time.Now().Add(patience))
	b, answered := make([]byte, 1500), make(map[uint16]bool)
	for len(answered) < n {
		size, err := c.Read(b)
		if err != nil {
			t.Fatalf("%s, after %d answers: %v", client, len(answered), err)
		}
		const header = 12
		ip, ok := netip.AddrFromSlice(b[max(0, size-4):size]) // of the last record
		if !ok || size < header || string(b[3:8]) != "\x80\x00\x01\x00\x01" || ip.String() != told {
			t.Fatalf("%s is told %v, want %s: %x", client, ip, told, b[:size])
		}
		answered[uint16(b[0])<<8|uint16(b[1])] = true
	}
}
