package main

import (
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/internal/testwait"
)

// A flow that is still connecting when its member goes down is not ended for that; it ends when it has connected to it after all.
func TestFlowThatConnectsToMemberThatIsDown(t *testing.T) {
	t.Parallel()
	two := speak(t, "two")
	const text = `
defaults: {timeouts: {connect: 1h}}
listeners: {a: {listen: "tcp://127.0.0.1:0", to: all}}
groups: {all: {balance: first, down: {live-flows: close}, members: [{name: late, to: "unix://{dir}/late"}, {name: two, to: "{0}"}]}}
`
	d := runFile(t, text, two.url())
	late := beLate(t, filepath.Join(d.dir, "late"))
	c := d.to("a")
	testwait.Until(t, "a flow is connecting", func() bool {
		l, err := d.admin.Flows(d.ctx(), api.Filter{State: "connecting"}, api.Page{})
		return err == nil && len(l.Flows) == 1
	})
	// The first check of a member whose accept queue is full decides.
	d.write(t, strings.Replace(text, "balance: first,", "balance: first, check: {tcp: {every: 1h, timeout: 100ms}},", 1), two.url())
	d.reload()
	d.memberIs("all", "late", "down")
	other := d.to("a")
	if n := name(t, other); n != "two" {
		t.Errorf("a client is at %s", n)
	}
	l, err := net.FileListener(late.file)
	if err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() { io.Copy(io.Discard, conn); conn.Close() }()
		}
	}()
	t.Cleanup(func() { l.Close(); <-over })
	mustReset(t, c)
	r := d.records(1)[0]
	mustBe(t, r, "cause", "down", "reason", "check-failed", "member", "late")
	if r["connect"] == nil {
		t.Errorf("the flow ended while it was connecting: %v", r)
	}
	mustPing(t, other)
}
