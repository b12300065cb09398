package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/cmd/penstock/internal/etcd"
	"github.com/penstock/penstock/cmd/penstock/internal/remote"
	"github.com/penstock/penstock/internal/testwait"
)

// reporting waits until n relays report that they run a version and are ready.
func (p *published) reporting(n int, version string) {
	p.Helper()
	testwait.Until(p.T, "all report", func() bool {
		out, _ := exec.Command(binary, "fleet", "status", "--json", "--fleet", p.url).CombinedOutput()
		return strings.Count(string(out), `"version": `+version+",") == n && strings.Count(string(out), `"state": "ready"`) == n
	})
}

// versions returns the version that each relay runs.
func versions(relays []*configured) (list []string) {
	for _, c := range relays {
		version := ""
		if s, err := c.admin.Status(c.ctx()); err == nil && len(s.Config.Remote) == 1 {
			version = s.Config.Remote[0].Version
		}
		list = append(list, version)
	}
	return list
}

func countOf(list []string, of string) (n int) {
	for _, s := range list {
		if s == of {
			n++
		}
	}
	return n
}

// A version is tried by one relay of four, and then all run it, or all go back: when it is refused, when its flows
// fail, and when whoever publishes is interrupted. Flows go on all the time.
func TestCanary(t *testing.T) {
	t.Parallel()
	one, two := speak(t, "one"), speak(t, "two")
	p := newPublished(t)
	p.good(publishedText, one.url())
	var relays []*configured
	var flows []*lasting
	taken := one.Addr().(*net.TCPAddr).Port
	for i := range 4 {
		c := p.relay(fmt.Sprint("r", i), t.TempDir(), "drain: 0s\n", "SITE=x", fmt.Sprint("TAKEN=", taken))
		p.runs(c, "1")
		flows = append(flows, p.flow(c, "one"))
		relays = append(relays, c)
	}
	p.reporting(4, "1")
	back := func(version string) {
		t.Helper()
		for _, c := range relays {
			p.runs(c, version)
		}
		for _, f := range flows {
			f.goesOn(t)
		}
	}

	// Nobody comes but those who were there. A busy relay does not run the version in time, or reports late; then there is a
	// longer time for the next one.
	n, out, code := 2, "", 0
	for wait := time.Second; ; wait, n = 4*wait, n+1 {
		out, code = p.publish([]string{"--canary", "25%", "--wait", wait.String(), "--unjudged", "promote"}, publishedText, two.url())
		if code != 3 || !strings.Contains(out, "not run in time by r") && !strings.Contains(out, "has not reported") || wait > time.Minute {
			break
		}
	}
	good := fmt.Sprint(n)
	if code != 0 || !strings.Contains(out, "version "+good+" is tried for ") || !strings.Contains(out, "promoted without having been judged: ") || !strings.Contains(out, " by 1 relay of 4: r") || !strings.Contains(out, "published version "+good) {
		t.Fatalf("a good version: %d, %s", code, out)
	}
	back(good)

	out, code = p.publish([]string{"--canary", "25%", "--wait", "5m"}, strings.Replace(publishedText, "{web", "{more: {listen: \"tcp://127.0.0.1:${TAKEN:-0}\", to: \"echo:\"}, web", 1), two.url())
	if code != 3 || !strings.Contains(out, fmt.Sprintf("version %d was taken back: refused by r", n+1)) || !strings.Contains(out, "address already in use") {
		t.Fatalf("a version that is refused: %d, %s", code, out)
	}
	back(good)

	// Clients that come to all relays find nobody where the new version leads to. What else can be wrong is in the tests of the judge (package fleet)
	// and of the reports that it judges by (package app).
	var all sync.WaitGroup
	done := make(chan struct{})
	for _, c := range relays {
		at := c.at("web").String()
		all.Go(func() {
			for {
				select {
				case <-done:
					return
				case <-time.After(5 * time.Millisecond):
				}
				if conn, err := net.Dial("tcp", at); err == nil {
					conn.SetDeadline(time.Now().Add(patience))
					readName(conn)
					conn.Close()
				}
			}
		})
	}
	nobody := speak(t, "nobody")
	nobody.Close()
	tried := n + 2
	out, code = p.publish([]string{"--canary", "25%", "--wait", "5m"}, publishedText, nobody.url())
	if code != 3 || !strings.Contains(out, fmt.Sprintf("version %d was taken back: ", tried)) || !strings.Contains(out, " on the canaries, ") {
		t.Fatalf("nobody is there: %d, %s", code, out)
	}
	back(good)
	close(done)
	all.Wait()

	cmd := p.trial("5m", publishedText+"# five\n", two.url())
	tries(t, relays, fmt.Sprint(tried+1))
	i := slices.Index(versions(relays), fmt.Sprint(tried+1))
	p.is(relays[i], "a trial", func(r api.RemoteConfig) bool { return r.Trial })
	if out, code := p.publish(nil, publishedText+"# six\n", two.url()); code != 1 || !strings.Contains(out, fmt.Sprintf("tester tries version %d with 1 relay", tried+1)) {
		t.Errorf("published while a version is tried: %d, %s", code, out)
	}
	cmd.Process.Signal(os.Interrupt)
	cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 3 {
		t.Errorf("interrupted: %d", code)
	}
	back(good)
}

// tries waits until one relay tries a version, which it does after all were watched for a while.
func tries(t *testing.T, relays []*configured, version string) {
	t.Helper()
	if !testwait.For(func() bool { return countOf(versions(relays), version) == 1 }) {
		t.Fatalf("nobody tries version %s: %v", version, versions(relays))
	}
}

// trial begins to publish with a canary.
func (p *published) trial(long, text string, values ...any) *exec.Cmd {
	p.Helper()
	file := p.dir + "/trial.yaml"
	if err := os.WriteFile(file, []byte(places(p.dir, text, values)), 0o600); err != nil {
		p.Fatal(err)
	}
	cmd := exec.Command(binary, "publish", "-c", file, "--canary", "1%", "--wait", long, p.url)
	cmd.Env = append(os.Environ(), "PENSTOCK_BY=tester", "SITE=published")
	if err := cmd.Start(); err != nil {
		p.Fatal(err)
	}
	p.Cleanup(func() { cmd.Process.Kill() })
	return cmd
}

// shortenLease gives a key that has a lease one that ends soon.
func (p *published) shortenLease(key string) {
	p.Helper()
	c, err := etcd.New(etcd.Config{Remote: remote.Config{Servers: []string{p.URL}}, Timeout: patience})
	if err != nil {
		p.Fatal(err)
	}
	defer c.Close()
	kv, _, err := c.Get(p.Context(), key)
	if err != nil || kv.Lease == 0 {
		p.Fatalf("%+v, %v", kv, err)
	}
	testwait.Until(p.T, "the lease has not ended before the key has it", func() bool {
		lease, err := c.Grant(p.Context(), 2*time.Second)
		if err == nil {
			_, err = c.Put(p.Context(), key, kv.Value, lease)
		}
		return err == nil
	})
}

// Publish is killed while it tries a version: the canary goes back when the lease ends, which no restart of etcd
// prevents.
func TestCanaryPublisherKilled(t *testing.T) {
	t.Parallel()
	one, two := speak(t, "one"), speak(t, "two")
	p := newPublished(t)
	p.good(publishedText, one.url())
	var relays []*configured
	var flows []*lasting
	for i := range 2 {
		c := p.relay(fmt.Sprint("r", i), t.TempDir(), "drain: 0s\n", "SITE=x")
		p.runs(c, "1")
		flows = append(flows, p.flow(c, "one"))
		relays = append(relays, c)
	}
	p.reporting(2, "1")
	cmd := p.trial("5m", publishedText, two.url())
	tries(t, relays, "2")
	if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	p.shortenLease("/penstock/edge/config/canary")
	p.Restart()
	if !testwait.For(func() bool { return countOf(versions(relays), "1") == 2 }) {
		t.Fatalf("the relays run %v", versions(relays))
	}
	for _, f := range flows {
		f.goesOn(t)
	}
	if out, code := p.publish(nil, publishedText, two.url()); code != 0 || !strings.Contains(out, "published version 3") {
		t.Errorf("%d, %s", code, out)
	}
	for _, c := range relays {
		p.runs(c, "3")
	}
}
