package main

import (
	"bytes"
	"net"
	"strings"
	"syscall"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/internal/testwait"
)

// A daemon that drains goes on with a capture until its flows have ended, and the file has every byte of them.
func TestCaptureDrain(t *testing.T) {
	need(t, "tshark")
	t.Parallel()
	member := echoOf(t)
	k := runFile(t, `drain: 10m
listeners: {web: {listen: "tcp://127.0.0.1:0", to: "tcp://{0}"}}
`, member.Addr())
	c := k.capture(t, "--listener", "web")
	mine := k.to("web")
	defer mine.Close()
	exchange(t, mine, owned(1, 100_000))
	k.cmd.Process.Signal(syscall.SIGTERM)
	testwait.Until(t, "the daemon drains", func() bool {
		s, err := k.admin.Status(k.ctx())
		return err == nil && s.State == api.StateDraining
	})
	exchange(t, mine, owned(2, 100_000))
	mine.Close()
	testwait.Until(t, "the capture knows that the daemon has ended", func() bool { return strings.Contains(c.said.String(), "tells of flows no longer") })
	c.interrupt()
	c.mustEnd()
	c.mustHave(mine, member, append(owned(1, 100_000), owned(2, 100_000)...))
}

// mustHave checks that the file has a flow on both sides, each direction as a stream: what its client has sent, and what member has made of that.
func (k *capturing) mustHave(client net.Conn, member net.Listener, sent []byte) {
	k.t.Helper()
	got := payloads(k.t, k.file)
	if len(got) != 4 {
		k.t.Errorf("%d streams, want 4: %s", len(got), k.said)
	}
	for s, b := range got {
		want := inverted(sent)
		if s.from == portNumber(client.LocalAddr()) || strings.HasSuffix(s.on, " member") && s.from != portNumber(member.Addr()) {
			want = sent
		}
		if !bytes.Equal(b, want) {
			k.t.Errorf("%v: %d bytes, which are others than the %d that were sent", s, len(b), len(want))
		}
	}
}
