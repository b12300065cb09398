package main

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
)

// What is asked for by the client that a PROXY header names is captured from the first packet of the proxy on; of Unix sockets, and of what was
// never there, the command says so.
func TestCaptureNamed(t *testing.T) {
	need(t, "tshark")
	t.Parallel()
	member := echoOf(t)
	k := runFile(t, `listeners:
  web: {listen: "tcp://127.0.0.1:0", proxy-protocol: {from: 127.0.0.1}, to: "tcp://{0}"}
  local: {listen: "unix://{dir}/local.sock", to: "tcp://{0}"}
`, member.Addr())
	named := k.capture(t, "--source", "192.0.2.1")
	nobody := k.capture(t, "--source", "192.0.2.99")
	local := k.capture(t, "--listener", "local", "--flows", "1")
	const size = 1000
	header := "PROXY TCP4 192.0.2.1 10.0.0.1 4000 443\r\n"
	proxy := k.to("web")
	if _, err := proxy.Write([]byte(header)); err != nil {
		t.Fatal(err)
	}
	exchange(t, proxy, owned(1, size))
	port := portNumber(proxy.LocalAddr())
	proxy.Close()
	c, err := net.Dial("unix", k.dir+"/local.sock")
	if err != nil {
		t.Fatal(err)
	}
	exchange(t, c, owned(2, size))
	c.Close()
	var id uint64
	for _, r := range k.records(2) {
		if strings.Contains(r["client"].(string), "192.0.2.1:4000") {
			id, _ = strconv.ParseUint(r["id"].(string), 10, 64)
		}
	}
	for _, c := range []*capturing{named, nobody} {
		c.interrupt()
	}
	for _, c := range []*capturing{named, nobody, local} {
		c.mustEnd()
	}
	got := payloads(t, named.file)
	if up := got[stream{fmt.Sprintf("flow %d client", id), port}]; !bytes.HasPrefix(up, []byte(header)) || len(up) != len(header)+size {
		t.Errorf("of the proxy there are %d bytes, which begin with %.20q, of flow %d from port %d: %s", len(up), up, id, port, named.said)
		for s, b := range got {
			t.Logf("%v: %d bytes", s, len(b))
		}
	}
	if strings.Contains(named.said.String(), "nothing was captured") || strings.Contains(named.said.String(), "Unix") {
		t.Errorf("it says %s", named.said)
	}
	if !strings.Contains(nobody.said.String(), "nothing was captured") || !strings.Contains(nobody.said.String(), "PROXY header") {
		t.Errorf("of nobody it says %s", nobody.said)
	}
	if !strings.Contains(local.said.String(), "1 flow of clients at a Unix socket") {
		t.Errorf("of the Unix socket it says %s", local.said)
	}
	if info, err := os.Stat(local.file); err != nil || info.Size() < size {
		t.Errorf("the member's side is not there: %v", err)
	}
}
