package dashboard_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/cmd/penstock/internal/testbrowser"
	"github.com/penstock/penstock/internal/testnet"
)

const configuration = `
listeners:
  front:
    listen: tcp://127.0.0.1:0
    to: echoes
  names:
    listen: udp://127.0.0.1:0
    to: echoes
    removed: {live-flows: close}
groups:
  echoes:
    members: ["echo:"]
  away:
    members: ["unix:///nobody/listens/here"]
admin:
  listen: tcp://127.0.0.1:0
  token-file: DIR/token
  read-token-file: DIR/read-token
`

// startDaemon builds and runs penstock with a configuration in a folder, and returns the origin of its page
// and a client of its API.
func startDaemon(t *testing.T, dir, text string) (origin string, client *api.Client) {
	t.Helper()
	binary := filepath.Join(dir, "penstock")
	args := append([]string{"build", "-buildvcs=false", "-o", binary}, testnet.RaceFlags...)
	if out, err := exec.Command("go", append(args, "../..")...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for name, content := range map[string]string{"token": full, "read-token": readOnly, "penstock.yaml": text} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(binary, "run", "-c", "penstock.yaml")
	cmd.Dir = dir
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	found := make(chan string, 1)
	ended := make(chan struct{})
	var said bytes.Buffer
	go func() {
		defer close(ended)
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			said.Write(append(lines.Bytes(), '\n'))
			var line struct{ Msg, Listener string }
			if json.Unmarshal(lines.Bytes(), &line) == nil && line.Msg == "admin" {
				found <- line.Listener
			}
		}
	}()
	t.Cleanup(func() {
		cmd.Process.Kill()
		<-ended
		cmd.Wait()
	})
	select {
	case at := <-found:
		origin = "http://" + strings.TrimPrefix(at, "tcp://")
		if client, err = api.NewClient(at, full); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(client.Close)
	case <-ended:
		t.Fatalf("the daemon has ended: %s", said.Bytes())
	}
	return origin, client
}

// A real daemon with real flows: what the page shows is what the API says, and a
// kill ends a connection.
func TestDaemon(t *testing.T) {
	in := testbrowser.Start(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "penstock.yaml")
	origin, client := startDaemon(t, dir, strings.ReplaceAll(configuration, "DIR", dir))
	ctx, cancel := context.WithTimeout(context.Background(), 3*patience)
	defer cancel()
	listeners, err := client.Listeners(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var conns []net.Conn
	for i := range 6 {
		at, err := url.Parse(listeners.Listeners[slices.IndexFunc(listeners.Listeners, func(l api.Listener) bool {
			return l.Name == []string{"front", "names"}[i/4]
		})].Address)
		if err != nil {
			t.Fatal(err)
		}
		c, err := net.Dial(at.Scheme, at.Host)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		message := bytes.Repeat([]byte{'x'}, 1000*(i+1))
		if _, err := c.Write(message); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, message[:1000]); err != nil && i < 4 {
			t.Fatal(err)
		}
		conns = append(conns, c)
	}

	b := open(t, in, origin)
	b.enter("#token input", full)
	b.live()
	// Nothing moves any more, so that what the API says stays.
	b.soon("all flows are there", "document.querySelectorAll('#flow-list tbody tr').length === 6 && document.getElementById('total-flows').innerText === '6'")
	status, err := client.Status(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for selector, want := range map[string]string{
		"#version": status.Version, "#state": status.State, "#hash": status.Config.Hash[:12], "#source": status.Config.Source, "#total-begun": fmt.Sprint(status.Totals.Begun),
	} {
		if got := b.text(selector); got != want {
			t.Errorf("%s is %q, the API says %q", selector, got, want)
		}
	}
	for id, want := range map[string]int64{"up": status.Totals.BytesUp, "down": status.Totals.BytesDown} {
		b.soon(fmt.Sprintf("bytes %s are %d", id, want), fmt.Sprintf("document.getElementById('total-%s').title.replaceAll(',', '') === '%d bytes'", id, want))
	}
	if got := len(b.texts("#loops li")); got != len(status.Loops) {
		t.Errorf("%d loops, the API says %d", got, len(status.Loops))
	}
	flows, err := client.Flows(ctx, api.Filter{}, api.Page{Sort: "bytes"})
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, f := range flows.Flows {
		ids = append(ids, fmt.Sprint(f.ID))
	}
	b.want(ids)
	groups, err := client.Groups(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var states []string
	for _, g := range groups.Groups {
		for _, m := range g.Members {
			states = append(states, m.State)
		}
	}
	b.soon("groups are there", fmt.Sprintf("document.querySelectorAll('#group-list article').length === %d", len(groups.Groups)))
	if got := b.texts("#group-list .state"); !slices.Equal(got, states) {
		t.Errorf("members are %q, the API says %q", got, states)
	}

	first := flows.Flows[slices.IndexFunc(flows.Flows, func(f api.Flow) bool {
		return f.Client.AddrPort.String() == conns[3].LocalAddr().String() && f.Kind == "stream"
	})]
	detail, err := client.Flow(ctx, first.ID)
	if err != nil {
		t.Fatal(err)
	}
	b.click(fmt.Sprintf("#flow-list [data-id='%d']", first.ID))
	b.soon("the detail is open", "document.querySelector('dialog.detail')?.open")
	shown := b.text("dialog.detail")
	wants := []string{detail.Client.String(), detail.Listener, detail.Up.Path}
	if detail.ClientTCP != nil {
		wants = append(wants, detail.ClientTCP.State, detail.ClientTCP.Congestion)
	}
	for _, want := range wants {
		if !strings.Contains(shown, want) {
			t.Errorf("%q is not in the detail: %s", want, shown)
		}
	}
	b.mayFail() // the detail may ask for the flow once more
	b.click("dialog.detail .danger")
	b.click("dialog.confirm[open] [type=submit]")
	if n, err := io.Copy(io.Discard, conns[3]); n > 4000 {
		t.Errorf("the connection went on: %d, %v", n, err)
	}
	b.soon("the flow is gone", fmt.Sprintf("!document.querySelector(\"#flow-list [data-id='%d']\")", first.ID))

	// What was done is told: the flow with its cause, the end with who asked for it.
	b.soon("the ended flow is listed", fmt.Sprintf("[...document.querySelectorAll('#ended-list tbody tr')].some(tr => tr.querySelector('.quiet')?.innerText === '%d' && tr.innerText.includes('killed'))", first.ID))
	ended, err := client.Ended(ctx, api.Filter{Listener: "front"}, false, "", 10)
	if err != nil {
		t.Fatal(err)
	}
	if len(ended.Flows) != 1 || ended.Flows[0].ID != first.ID || ended.Flows[0].Cause != "killed" || ended.Flows[0].Up.Bytes != 4000 || ended.Flows[0].Connect == 0 {
		t.Errorf("ended flows are %+v", ended.Flows)
	}
	b.soon("the event has its actor", fmt.Sprintf("[...document.querySelectorAll('#event-list li')].some(li => li.innerText.includes('%d') && /the flow was ended by full token, 127\\.0\\.0\\.1:/.test(li.innerText))", first.ID))

	// A reload is looked at before it is made: it ends the flows of a listener that the file no longer has.
	b.soon("the file says what runs", "document.getElementById('diff').innerText === 'The file says what runs.'")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	names := bytes.Index(text, []byte("  names:\n"))
	shorter := slices.Concat(text[:names], text[bytes.Index(text, []byte("groups:\n")):])
	if err := os.WriteFile(file, shorter, 0o600); err != nil {
		t.Fatal(err)
	}
	b.key(kb.Escape) // the detail
	b.click("#reload-now")
	b.soon("the effect is told", "document.querySelector('dialog.confirm[open] .effect')?.innerText === 'Ends or drains 2 flows.'")
	if got := b.texts("dialog.confirm[open] .changes li"); len(got) == 0 || !strings.HasPrefix(got[0], "listener names removed – 2 flows end or drain") {
		t.Errorf("the changes are %q", got)
	}
	b.click("dialog.confirm[open] [type=submit]")
	b.soon("the listener is gone", "[...document.querySelectorAll('#listener-list tbody tr')].every(tr => !tr.innerText.startsWith('names')) && document.querySelectorAll('#listener-list tbody tr').length === 2")
	b.soon("the reload has its actor", "[...document.querySelectorAll('#event-list li')].some(li => /reload[^]*by full token, /.test(li.innerText))")
}
