package main

import (
	"io"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/testcerts"
	"github.com/penstock/penstock/internal/testwait"
)

// A flow that waits while a reload gives its group TLS goes nowhere in the clear.
func TestTLSAfterReload(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	authority := testcerts.Authority(t, "authority")
	ca, _ := authority.Write(t, dir, "ca")
	plain := speak(t, "plain")
	member := secureSpeaker(t, authority.Issue(t, "member.test"))
	const text = `
sandbox: {mode: off}
listeners: {main: {listen: "tcp://127.0.0.1:0", to: web}}
groups:
  web: {members: [{to: "{0}", max-flows: 1}], queue: {size: 4, timeout: 1m}}
`
	d := runFile(t, text, plain.url())
	first := d.to("main")
	name(t, first)
	second := d.to("main")
	io.WriteString(second, "secret\n")
	testwait.Until(t, "the flow is queued", func() bool {
		g, err := d.admin.Group(d.ctx(), "web")
		return err == nil && g.Queue.Flows == 1
	})
	d.write(t, `
sandbox: {mode: off}
listeners: {main: {listen: "tcp://127.0.0.1:0", to: web}}
groups:
  web: {tls: {ca: "{1}", server-name: member.test}, members: [{to: "{0}", max-flows: 1}], queue: {size: 4, timeout: 1m}}
`, member, ca)
	d.reload()
	if got := name(t, second); got != "member" {
		t.Errorf("it went to %s", got)
	}
}
