package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/cmd/penstock/internal/testfleet"
	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
)

// published is a configuration in etcd, and the relays that run it.
type published struct {
	*testing.T
	*testfleet.Server
	dir string
	url string
}

func newPublished(t *testing.T) *published {
	t.Helper()
	s := testfleet.Etcd(t)
	return &published{t, s, shortDir(t), "etcd" + strings.TrimPrefix(s.URL, "http") + "/penstock/edge"}
}

// command runs a command with the URL of the configuration.
func (p *published) command(args ...string) (out string, code int) {
	p.Helper()
	cmd := exec.Command(binary, append(args, p.url)...)
	cmd.Env = append(os.Environ(), "PENSTOCK_BY=tester", "SITE=published", "GORACE=atexit_sleep_ms=0")
	text, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		p.Fatal(err)
	}
	return string(text), cmd.ProcessState.ExitCode()
}

// publish publishes a text. {N} is the N-th value.
func (p *published) publish(args []string, text string, values ...any) (out string, code int) {
	p.Helper()
	file := filepath.Join(p.dir, "publish.yaml")
	if err := os.WriteFile(file, []byte(places(p.dir, text, values)), 0o600); err != nil {
		p.Fatal(err)
	}
	return p.command(append([]string{"publish", "-c", file}, args...)...)
}

// good publishes a text, or fails.
func (p *published) good(text string, values ...any) {
	p.Helper()
	if out, code := p.publish(nil, text, values...); code != 0 {
		p.Fatalf("publish: exit code %d: %s", code, out)
	}
}

// relay starts a relay with a layer of its own, which adds the admin listener.
func (p *published) relay(node, state, layer string, env ...string) *configured {
	p.Helper()
	c := p.begun(node, state, layer, env...)
	c.daemon.line("ready")
	return c
}

func (p *published) begun(node, state, layer string, env ...string) *configured {
	p.Helper()
	c := &configured{dir: shortDir(p.T)}
	c.file = filepath.Join(c.dir, "own.yaml")
	c.write(p.T, layer)
	cmd := exec.Command(binary, "run", "-c", p.url, "-c", c.file, "--node", node, "--state", state)
	cmd.Env = append(os.Environ(), env...)
	c.daemon = launch(p.T, cmd)
	c.connect(p.T)
	return c
}

// is waits until the configuration in etcd is as it should be, as a relay says.
func (p *published) is(c *configured, what string, is func(api.RemoteConfig) bool) {
	p.Helper()
	var r api.RemoteConfig
	if !testwait.For(func() bool {
		s, err := c.admin.Status(c.ctx())
		if err != nil || len(s.Config.Remote) != 1 {
			return false
		}
		r = s.Config.Remote[0]
		return is(r)
	}) {
		p.Fatalf("never: %s; it is %+v", what, r)
	}
}

// runs waits until a relay runs a version, and nothing is wrong.
func (p *published) runs(c *configured, version string) {
	p.Helper()
	p.is(c, "version "+version, func(r api.RemoteConfig) bool {
		return r.Version == version && r.Error == "" && r.Saved == "" && r.Refused == nil
	})
}

// ends ends a relay. Its exit code says whether it had flows.
func (c *configured) ends() {
	c.t.Helper()
	c.signal(os.Interrupt)
	c.exit()
}

// A lasting flow must be there at the end of a test.
type lasting struct {
	net.Conn
	n int
}

func (p *published) flow(c *configured, member string) *lasting {
	p.Helper()
	conn := c.to("web")
	if got := name(p.T, conn); got != member {
		p.Fatalf("a flow to %s, not to %s", got, member)
	}
	return &lasting{Conn: conn}
}

// goesOn checks that a flow brings back what it is sent.
func (f *lasting) goesOn(t *testing.T) {
	t.Helper()
	f.n++
	sent := fmt.Sprintf("line %d\n", f.n)
	f.SetDeadline(time.Now().Add(patience))
	if _, err := f.Write([]byte(sent)); err != nil {
		t.Fatal(err)
	}
	if got, err := readName(f); err != nil || got+"\n" != sent {
		t.Fatalf("%q, %v; want %q", got, err, sent)
	}
}

const publishedText = `# site ${SITE}
listeners: {web: {listen: "tcp://127.0.0.1:0", to: all}}
groups: {all: {members: [{name: "${SITE}", to: "{0}"}]}}
`

// A relay whose list of servers has another order, or other servers, starts with the last good configuration while etcd is
// away, and says whose that is.
func TestPublishOtherServers(t *testing.T) {
	t.Parallel()
	one := speak(t, "one")
	p := newPublished(t)
	p.good(publishedText, one.url())
	host := strings.TrimPrefix(p.URL, "http://")
	dead := "127.0.0.1:" + testnet.Port(t)
	of := func(hosts string) string { return "etcd://" + hosts + "/penstock/edge" }
	state := t.TempDir()
	p.url = of(host + "," + dead)
	c := p.relay("a", state, "drain: 0s\n", "SITE=a")
	p.runs(c, "1")
	c.ends()
	p.Kill()
	for _, hosts := range []string{dead + "," + host, dead} {
		before := p.url
		p.url = of(hosts)
		c = p.relay("a", state, "drain: 0s\n", "SITE=a")
		p.is(c, "the last good configuration", func(r api.RemoteConfig) bool {
			return r.Version == "1" && strings.HasSuffix(r.Saved, ", which is of "+before)
		})
		c.ends()
		p.url = before
	}
}

// Relays run what is published, while their flows go on. What one of them cannot apply, it refuses. Without etcd
// they go on, and start.
func TestPublish(t *testing.T) {
	t.Parallel()
	one, two := speak(t, "one"), speak(t, "two")
	p := newPublished(t)
	p.good(publishedText, one.url())
	states := []string{t.TempDir(), t.TempDir()}
	relays := []*configured{p.relay("a", states[0], "drain: 0s\n", "SITE=a"), p.relay("b", states[1], "drain: 0s\n", "SITE=b")}
	var flows []*lasting
	for i, c := range relays {
		p.runs(c, "1")
		flows = append(flows, p.flow(c, "one"))
		if g, err := c.admin.Groups(c.ctx()); err != nil || g.Groups[0].Members[0].Name != string("ab"[i]) {
			t.Errorf("%+v, %v: the variable is not that of the relay", g, err)
		}
	}
	if out, code := p.publish(nil, publishedText, one.url()); code != 0 || !strings.Contains(out, "nothing changes: version 1 has the same text") {
		t.Errorf("the same again: %d, %s", code, out)
	}
	if out, code := p.publish(nil, "listeners: {web: {listen: 7}}\n"); code != 2 || !strings.Contains(out, "publish.yaml:1:") {
		t.Errorf("what is invalid: %d, %s", code, out)
	}
	if out, code := p.publish(nil, "admin: {listen: \"tcp://127.0.0.1:0\", token-file: token}\n"+publishedText, one.url()); code != 2 || !strings.Contains(out, "token is a relative path, and this text is in no folder") {
		t.Errorf("a relative path: %d, %s", code, out)
	}
	out, code := p.publish([]string{"-m", "another member"}, publishedText, two.url())
	if code != 0 || !strings.Contains(out, "compared with version 1 of tester:") || !strings.Contains(out, "published version 2") {
		t.Errorf("%d, %s", code, out)
	}
	for _, c := range relays {
		p.runs(c, "2")
		flows = append(flows, p.flow(c, "two"))
	}

	// The port of the second listener is taken at one of the relays.
	taken := one.Addr().(*net.TCPAddr).Port
	b := relays[1]
	b.ends()
	flows = []*lasting{flows[0], flows[2]}
	b = p.relay("b", states[1], "drain: 0s\n", "SITE=b", fmt.Sprint("TAKEN=", taken))
	p.runs(b, "2")
	flows = append(flows, p.flow(b, "two"))
	p.good(publishedText+"# more\n", two.url())
	p.runs(b, "3")
	p.good(strings.Replace(publishedText, "{web", "{more: {listen: \"tcp://127.0.0.1:${TAKEN:-0}\", to: \"echo:\"}, web", 1), two.url())
	p.runs(relays[0], "4")
	p.is(b, "version 4 is refused", func(r api.RemoteConfig) bool {
		return r.Version == "3" && r.Refused != nil && r.Refused.Version == "4" && strings.Contains(r.Refused.Error, "address already in use")
	})
	if n := b.metric("penstock_config_remote_refused", ""); n != 1 {
		t.Errorf("refused: %v", n)
	}
	if out, code := p.command("rollback", "-m", "a port is taken"); code != 0 || !strings.Contains(out, "published version 5, which is version 3") {
		t.Errorf("rollback: %d, %s", code, out)
	}
	p.runs(relays[0], "5")
	p.runs(b, "5")
	testwait.Until(t, "no reload has failed last", func() bool {
		s, err := b.admin.Status(b.ctx())
		return err == nil && s.Config.Failed == nil
	})
	if out, _ := p.command("history"); strings.Count(out, "tester") != 5 || !strings.Contains(out, "rollback to version 3: a port is taken") {
		t.Errorf("history: %s", out)
	}
	if out, _ := p.command("history", "--diff", "2"); !strings.Contains(out, "\n- groups: {all: {members: [{name: \"${SITE}\", to: \""+one.url()) || !strings.Contains(out, "\n+ groups: ") {
		t.Errorf("diff: %s", out)
	}

	// Without etcd everything goes on, and a relay starts with what its disk has.
	p.Kill()
	for _, c := range []*configured{relays[0], b} {
		p.is(c, "etcd is away", func(r api.RemoteConfig) bool { return r.Version == "5" && r.Error != "" && !r.Since.IsZero() })
		c.to("web").Close()
	}
	b.ends()
	flows = flows[:2]
	b = p.relay("b", states[1], "drain: 0s\n", "SITE=b")
	p.is(b, "version 5 from the disk", func(r api.RemoteConfig) bool {
		return r.Version == "5" && r.Error != "" && strings.HasPrefix(r.Saved, states[1])
	})
	flows = append(flows, p.flow(b, "two"))
	if out, code := p.publish(nil, publishedText, one.url()); code != 1 {
		t.Errorf("without etcd: %d, %s", code, out)
	}
	p.Restart()
	p.runs(b, "5")
	p.good(publishedText, one.url())
	for _, c := range []*configured{relays[0], b} {
		p.runs(c, "6")
		flows = append(flows, p.flow(c, "one"))
	}
	for _, f := range flows {
		f.goesOn(t)
	}
}

// A relay without a configuration waits for one: for etcd, and for the first one that is published. A signal ends
// that.
func TestPublishFirst(t *testing.T) {
	t.Parallel()
	p := newPublished(t)
	p.Kill()
	dir := t.TempDir()
	c := p.begun("a", dir, "drain: 0s\n")
	if l := c.line("configuration: none yet"); l["error"] == "" {
		t.Errorf("%v", l)
	}
	c.signal(syscall.SIGTERM)
	c.mustExit(0)
	c = p.begun("a", dir, "drain: 0s\n")
	c.line("configuration: none yet")
	p.Restart()
	p.good("listeners: {web: {listen: \"tcp://127.0.0.1:0\", to: \"echo:\"}}\n")
	c.line("ready")
	p.runs(c, "1")
	// What cannot be applied at a start is refused, and the disk has what can.
	taken := speak(t, "one").Addr().(*net.TCPAddr).Port
	c.ends()
	p.good("listeners: {web: {listen: \"tcp://127.0.0.1:${TAKEN:-0}\", to: \"echo:\"}}\n")
	c = p.relay("a", dir, "drain: 0s\n", fmt.Sprint("TAKEN=", taken))
	p.is(c, "version 1 from the disk", func(r api.RemoteConfig) bool {
		return r.Version == "1" && r.Refused != nil && r.Refused.Version == "2" && r.Error == ""
	})
	c.ends()
	p.good("listeners: {web: {listen: \"tcp://127.0.0.1:${NOBODY_HAS_THIS:-0}\", to: \"echo:\", limits: {flows: \"${MOST:-100}\"}}}\n")
	c = p.relay("a", dir, "drain: 0s\n", "MOST=no")
	p.is(c, "version 1 from the disk again", func(r api.RemoteConfig) bool {
		return r.Version == "1" && r.Refused != nil && r.Refused.Version == "3"
	})
}

// With a keeper, the next worker waits for nobody: it has the text of the worker before, although etcd does not
// answer and there is no state folder.
func TestPublishKeeper(t *testing.T) {
	t.Parallel()
	one, two := speak(t, "one"), speak(t, "two")
	p := newPublished(t)
	p.good(publishedText, one.url())
	c := &configured{dir: shortDir(t)}
	c.file = filepath.Join(c.dir, "own.yaml")
	c.write(t, "drain: 0s\nkeeper: {keep-after: 0s, healthy-after: 100ms}\n")
	cmd := exec.Command(binary, "run", "-c", p.url, "-c", c.file, "--node", "a")
	cmd.Env = append(os.Environ(), "SITE=a")
	c.begin(t, cmd)
	k := &kept{configured: c}
	k.endWorker(t)
	testwait.Until(t, "the API answers", k.answers)
	p.runs(c, "1")
	f := p.flow(c, "one")
	p.good(publishedText, two.url())
	p.runs(c, "2")
	flows := []*lasting{f, p.flow(c, "two")}
	k.holds(2)
	p.Pause()
	for n, next := range []func(){k.crash, k.upgrade} {
		next()
		for _, f := range flows {
			f.goesOn(t)
		}
		p.is(c, fmt.Sprint("version 2 in worker ", n), func(r api.RemoteConfig) bool { return r.Version == "2" && r.Saved == "the worker before" })
		flows = append(flows, p.flow(c, "two"))
	}
	p.Resume()
	p.runs(c, "2")
	p.good(publishedText, one.url())
	p.runs(c, "3")
	flows = append(flows, p.flow(c, "one"))
	for _, f := range flows {
		f.goesOn(t)
	}
}
