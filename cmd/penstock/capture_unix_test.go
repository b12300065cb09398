package main

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/internal/testwait"
)

// Captures of Unix listeners of a relay in its sandbox have the member's side of each flow over a reload and an upgrade, with every byte of its
// owner, and how a flow ended that was killed.
func TestCaptureUnix(t *testing.T) {
	need(t, "tshark")
	t.Parallel()
	member, udp := echoOf(t), udpMember(t)
	text := `listeners:
  streams: {listen: "unix://{dir}/streams.sock", to: tcp}
  datagrams: {listen: "unixgram://{dir}/datagrams.sock", to: udp}
groups:
  tcp: {members: [{name: one, to: "tcp://{0}"}]}
  udp: {members: [{name: two, to: "udp://{1}"}]}
`
	if os.Getuid() == 0 {
		text += "sandbox: {user: '65534:65534'}\n"
	}
	k := runKept(t, text, member.Addr(), udp)
	flow := map[string]net.Conn{}
	sent := map[string][]byte{}
	begin := func(name, network string, owner uint64) {
		t.Helper()
		at := &net.UnixAddr{Net: network, Name: k.dir + "/streams.sock"}
		var from *net.UnixAddr
		if network == "unixgram" {
			at.Name, from = k.dir+"/datagrams.sock", &net.UnixAddr{Net: network, Name: fmt.Sprintf("@penstock-capture-%d-%d", os.Getpid(), owner)}
		}
		c, err := net.DialUnix(network, from, at)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		flow[name] = c
	}
	turn := uint64(0)
	// all sends bytes of its own by each flow.
	all := func() {
		t.Helper()
		for name, c := range flow {
			turn++
			b := owned(turn, 600)
			exchange(t, c, b)
			sent[name] = append(sent[name], b...)
		}
	}
	begin("old stream", "unix", 1)
	begin("old datagrams", "unixgram", 2)
	all()
	k.holds(2)
	clear(sent)
	streams, datagrams := k.capture(t, "--listener", "streams"), k.capture(t, "--listener", "datagrams")
	begin("stream", "unix", 3)
	begin("datagrams", "unixgram", 4)
	all()
	k.write(t, strings.Replace(text, "name: one", "weight: 2, name: one", 1)+keeperOfTests, member.Addr(), udp)
	k.reload()
	all()
	k.holds(4)
	k.upgrade()
	all()
	begin("young stream", "unix", 5)
	begin("young datagrams", "unixgram", 6)
	all()

	testwait.Until(t, "both captures have asked the next worker, too", func() bool {
		e, err := k.admin.Events(k.ctx(), 0)
		n := 0
		for i := range e.Events {
			if e.Events[i].Kind == "capture" {
				n++
			}
		}
		return err == nil && n >= 4
	})
	list, err := k.admin.Flows(k.ctx(), api.Filter{Listener: "streams"}, api.Page{Sort: "age"})
	if err != nil || len(list.Flows) != 3 {
		t.Fatalf("%d flows, %v", len(list.Flows), err)
	}
	oldest := strconv.FormatUint(list.Flows[0].ID, 10)
	if code, out := k.command("kill", oldest); code != 0 {
		t.Fatal(out)
	}
	testwait.Until(t, "the flow has ended", func() bool {
		l, err := k.admin.Flows(k.ctx(), api.Filter{Listener: "streams"}, api.Page{Sort: "age"})
		return err == nil && len(l.Flows) == 2
	})
	for _, c := range []*capturing{streams, datagrams} {
		c.interrupt()
		c.mustEnd()
		if want := "3 flows of clients at a Unix socket, which has no packets: only the member's side is in the file"; !strings.Contains(c.said.String(), want) {
			t.Errorf("it has not said that sides are missing: %s", c.said)
		}
		got := payloads(t, c.file)
		if len(got) != 6 {
			t.Errorf("%d streams in a file of 3 flows", len(got))
		}
		for name, want := range sent {
			if strings.HasSuffix(name, "datagrams") != (c == datagrams) {
				continue
			}
			found := 0
			for _, b := range got {
				if bytes.Equal(b, want) || bytes.Equal(b, inverted(want)) {
					found++
				}
			}
			if found != 2 {
				t.Errorf("%s: %d directions of 2 have exactly its bytes", name, found)
			}
		}
	}
	// tshark has no field for the comment of an interface's statistics, where the end always is.
	file, err := os.ReadFile(streams.file)
	if want := "flow " + oldest + " ended: killed"; err != nil || !bytes.Contains(file, []byte(want)) || bytes.Contains(file, []byte(want+", killed")) {
		t.Errorf("no comment is %q: %v, %s", want, err, streams.said)
	}
}
