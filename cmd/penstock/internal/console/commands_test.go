package console

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
)

// contains fails where got lacks one of the texts.
func contains(t *testing.T, got string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(got, text) {
			t.Errorf("no %q in:\n%s", text, got)
		}
	}
}

func TestStatus(t *testing.T) {
	r := newRig(t, newDaemon())
	contains(t, r.good("status"), "v1.2.3, ready, up for 1h0m", "/etc/penstock/penstock.yaml", "https", "2 of 4", "small reads")
	var s api.Status
	if err := json.Unmarshal([]byte(r.good("status", "--json")), &s); err != nil || s.Version != "v1.2.3" || len(s.Groups) != 2 {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestFlows(t *testing.T) {
	r := newRig(t, newDaemon())
	contains(t, r.good("flows"), "192.0.2.10:50000", "[2001:db8:85a3:1111:2222:8a2e:370:7334]:50002", "copy/splice", "sniffing", "3 of 3 flows")
	for filter, want := range map[string]string{
		"--from=192.0.2.0/24": "2 of 3 flows", "--from=192.0.2.10": "1 of 3 flows", "--state=sniffing": "1 of 3 flows", "--kind=datagram": "0 of 3 flows",
		"--older=5m": "2 of 3 flows", "--younger=4m": "1 of 3 flows", "--min-bytes=2GiB": "2 of 3 flows", "--limit=1": "1 of 3 flows; 3 match", "--path=splice": "3 of 3 flows",
		"--sort=rate": "/s", "--limit=0": "3 of 3 flows", "--sort=id": "3 of 3 flows",
	} {
		contains(t, r.good("flows", filter), want)
	}
	lines := strings.Split(strings.TrimSpace(r.good("flows", "--json", "--sort", "bytes")), "\n")
	var f api.Flow
	if err := json.Unmarshal([]byte(lines[0]), &f); err != nil || f.ID != 3 || len(lines) != 3 {
		t.Errorf("%d lines, the first is flow %d, %v", len(lines), f.ID, err)
	}
}

func TestEnded(t *testing.T) {
	r := newRig(t, newDaemon())
	contains(t, r.good("ended"), "192.0.2.10:50000", "upstream-refused", "refused: no-member", "connect: connection refused", "3 of 3 ended flows")
	for filter, want := range map[string]string{
		"--problems": "2 of 2 ended flows", "--cause=no-member": "1 of 3 ended flows", "--cause=end": "1 of 3 ended flows", "--cause=idle": "0 of 3 ended flows",
		"--from=192.0.2.0/24": "2 of 3 ended flows", "--older=1m": "1 of 3 ended flows", "--limit=1": "1 of 3 ended flows", "--limit=0": "3 of 3 ended flows",
	} {
		contains(t, r.good("ended", filter), want)
	}
	lines := strings.Split(strings.TrimSpace(r.good("ended", "--json", "--cause", "refused")), "\n")
	var f api.EndedFlow
	if err := json.Unmarshal([]byte(lines[0]), &f); err != nil || f.ID != 3 || f.Reason != "no-member" || len(lines) != 1 {
		t.Errorf("%d lines, the first is flow %d, %v", len(lines), f.ID, err)
	}
	for _, args := range [][]string{{"--limit=-1"}, {"--limit=10001"}, {"--older=-5s"}, {"--state=relaying"}, {"--idle=1s"}} {
		if code, _, stderr := r.run(append([]string{"ended"}, args...)...); code != exitUsage {
			t.Errorf("%q: exit code %d, %s", args, code, stderr)
		}
	}
}

// A name that nothing has is an error where it selects no flow: a slip would look like success.
func TestFilterNamesNothing(t *testing.T) {
	r := newRig(t, newDaemon())
	for _, command := range [][]string{{"flows"}, {"flows", "--json"}, {"ended"}, {"kill", "--dry-run"}, {"kill", "--yes"}, {"kill", "--yes", "--json"}} {
		for filter, want := range map[string]string{
			"--listener=htps": `no listener "htps"; allowed: `, "--route=slow": `no route "slow"; allowed: none`,
			"--group=nobody": `no group "nobody"; allowed: `, "--member=nobody": `no member "nobody"; allowed: `,
		} {
			code, stdout, stderr := r.run(append(command, filter)...)
			if code != exitFailed || stdout != "" || !strings.Contains(stderr, want) {
				t.Errorf("%q %s: exit code %d, %s%s; want %s", command, filter, code, stdout, stderr, want)
			}
		}
	}
	if len(r.flows) != 3 {
		t.Error("flows have ended")
	}
	// Nothing that is there matches, which is an answer.
	contains(t, r.good("flows", "--listener=https", "--min-bytes=100TiB"), "0 of 3 flows")
	if got := someOf([]string{"b", "a", "b"}); got != "a, b" {
		t.Error(got)
	}
	if got := someOf(strings.Split("abcdefghijklmnopqrstuvwx", "")); !strings.HasSuffix(got, "s, t, and 4 more") {
		t.Error(got)
	}
}

func TestFlow(t *testing.T) {
	r := newRig(t, newDaemon())
	got := r.good("flow", "2")
	contains(t, got, `\x1b[31mred`, "https > default > web > tcp://10.0.0.1:80", "420us +-110us", "cubic", "34ms for the first byte",
		"1.3, TLS_AES_128_GCM_SHA256, for www.example.com, ALPN h2, resumed, handshake 2ms", `CN=\x1b[31mred; spiffe://example/ops; serial 1f`, "handshake under way")
	if strings.Contains(got, "\x1b") {
		t.Error("what a client says gets to the terminal as it is")
	}
	var f api.FlowDetail
	if err := json.Unmarshal([]byte(r.good("flow", "1", "--json")), &f); err != nil || f.ClientTCP == nil {
		t.Errorf("%+v, %v", f, err)
	}
	if code, _, stderr := r.run("flow", "99"); code != exitFailed || !strings.Contains(stderr, "99") {
		t.Errorf("exit code %d, %s", code, stderr)
	}
}

func TestKill(t *testing.T) {
	r := newRig(t, newDaemon())
	code, _, stderr := r.run("kill", "--from", "192.0.2.0/24")
	if code != exitUsage || !strings.Contains(stderr, "2 flows match; --yes ends them") {
		t.Errorf("exit code %d, %s", code, stderr)
	}
	contains(t, r.good("kill", "--from", "192.0.2.0/24", "--dry-run"), "192.0.2.11:50001", "would end 2 flows")
	contains(t, r.good("kill", "1", "--dry-run"), "would end flow 1")
	if len(r.flows) != 3 {
		t.Fatal("a dry run ends flows")
	}
	contains(t, r.good("kill", "1"), "ended flow 1 of tcp://192.0.2.10:50000, 3m12s old")
	code, stdout, stderr := r.run("kill", "1", "2")
	if code != exitFailed || !strings.Contains(stderr, "1") || !strings.Contains(stdout, "ended flow 2") {
		t.Errorf("exit code %d, %s%s", code, stdout, stderr)
	}
	if got := r.good("kill", "--group", "web", "--yes", "--json"); !strings.Contains(got, `"killed": 1`) || len(r.flows) != 0 {
		t.Error(got)
	}
	contains(t, r.good("kill", "--group", "web", "--yes"), "ended 0 flows")
	for _, args := range [][]string{{"kill"}, {"kill", "1", "--group", "web"}, {"kill", "x"}, {"kill", "--older", "-5s"}, {"kill", "--yes"}} {
		if code, _, stderr := r.run(args...); code != exitUsage {
			t.Errorf("%q: exit code %d, %s", args, code, stderr)
		}
	}
}

// Members are added and removed, and what differs from the file is shown, or printed for it.
func TestMembersAtRunTime(t *testing.T) {
	r := newRig(t, newDaemon())
	contains(t, r.good("members", "add", "web", "tcp://10.0.0.9:80", "--name", "new", "--weight", "5"), "web/new tcp://10.0.0.9:80: up, weight 5", "penstock diff --yaml")
	contains(t, r.good("members", "set", "web/new", "--weight", "6"), "web/new tcp://10.0.0.9:80: up, weight 6")
	contains(t, r.good("members", "remove", "web/new"), "web/new tcp://10.0.0.9:80: removed")
	contains(t, r.good("diff"), "web/new", "added", "to tcp://10.0.0.9:80, weight 5")
	if got, want := r.good("diff", "--yaml"), "groups:\n  \"web\":\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	for _, args := range [][]string{{"members", "set", "web/new"}, {"members", "add", "web"}, {"members"}, {"members", "remove", "web"}} {
		if code, _, stderr := r.run(args...); code != exitUsage {
			t.Errorf("%q: exit code %d, %s", args, code, stderr)
		}
	}
}

func TestGroups(t *testing.T) {
	r := newRig(t, newDaemon())
	contains(t, r.good("groups"), "web: p2c", "connection refused", "resolvers: hash", "tcp://spare.example.com:80 tcp://10.0.0.7:80")
	if got := r.good("groups", "resolvers"); strings.Contains(got, "p2c") {
		t.Error(got)
	}
	if code, _, stderr := r.run("groups", "nobody"); code != exitFailed || !strings.Contains(stderr, "nobody") {
		t.Errorf("exit code %d, %s", code, stderr)
	}
}

func TestMembers(t *testing.T) {
	r := newRig(t, newDaemon())
	const member = "web/tcp://10.0.0.1:80"
	if out := r.good("drain", member); out != member+": drained, weight 10, 3 flows\n" { // the group has another one
		t.Error(out)
	}
	contains(t, r.good("drain", "resolvers/udp://10.0.0.53:53"), "drained, weight 1", "\nresolvers: no member takes new flows now")
	contains(t, r.good("disable", member), "disabled")
	contains(t, r.good("enable", member), "up")
	contains(t, r.good("weight", member, "7"), "weight 7")
	contains(t, r.good("restore", member), "up")
	if last := r.changes[len(r.changes)-1]; last.State != "file" || last.Weight == nil || *last.Weight != 0 {
		t.Errorf("%+v", last)
	}
	for args, want := range map[string]int{
		"drain web/nobody": exitFailed, "drain web": exitUsage, "weight " + member + " 257": exitFailed, "drain " + member + " --timeout=1s": exitUsage,
	} {
		if code, _, stderr := r.run(strings.Fields(args)...); code != want || strings.Count(stderr, "\n") > 1 {
			t.Errorf("%q: exit code %d, %s", args, code, stderr)
		}
	}
}

func TestDrainWaits(t *testing.T) {
	d := newDaemon()
	d.looked = func(d *daemon) {
		m := &d.groups[0].Members[0]
		m.Flows = max(0, m.Flows-1)
	}
	r := newRig(t, d)
	code, stdout, stderr := r.run("drain", "web/tcp://10.0.0.1:80", "--wait")
	contains(t, stdout, "drained, weight 10, 0 flows")
	contains(t, stderr, "flows left")
	if code != exitOK || strings.Contains(stderr, "\r") {
		t.Errorf("exit code %d, %q", code, stderr)
	}
}

func TestDrainGivesUp(t *testing.T) {
	r := newRig(t, newDaemon())
	code, _, stderr := r.run("drain", "web/tcp://10.0.0.1:80", "--wait", "--timeout", "20ms")
	if code != exitFailed || !strings.Contains(stderr, "3 flows are left after 20ms; the member stays drained") {
		t.Errorf("exit code %d, %s", code, stderr)
	}
}

// A reload that takes the group away ends the wait.
func TestDrainOfWhatGoes(t *testing.T) {
	d := newDaemon()
	d.looked = func(d *daemon) { d.groups = nil }
	r := newRig(t, d)
	r.good("drain", "web/tcp://10.0.0.1:80", "--wait")
}

func TestReload(t *testing.T) {
	r := newRig(t, newDaemon())
	contains(t, r.good("reload"), "web/tcp://10.0.0.9:80", "(needs a restart)", "2 changes, 3 flows end or drain", "cdcdcdcdcdcd")
	r.bad = []api.ConfigError{{Source: "p.yaml", Line: 3, Column: 5, Message: "unknown key lisen", Allowed: "listen, routes"}, {Source: "p.yaml", Line: 9, Column: 1, Message: "no group x"}}
	code, stdout, stderr := r.run("reload")
	contains(t, stderr, "configuration rejected, nothing changed: 2 errors", "p.yaml:3:5: unknown key lisen; allowed: listen, routes\n", "p.yaml:9:1: no group x\n")
	if code != exitFailed || stdout != "" {
		t.Errorf("exit code %d, %s", code, stdout)
	}
}

func TestLog(t *testing.T) {
	r := newRig(t, newDaemon())
	contains(t, r.good("log"), "info")
	contains(t, r.good("log", "debug"), "debug")
	if r.Level() != "debug" {
		t.Error(r.Level())
	}
	if code, _, _ := r.run("log", "loud"); code != exitUsage {
		t.Error(code)
	}
}

// Each error is one line that says what to do.
func TestErrors(t *testing.T) {
	r := newRig(t, newDaemon())
	code, _, stderr := run(t, "status", "--admin", r.tcp)
	if code != exitFailed || !strings.Contains(stderr, "PENSTOCK_TOKEN") {
		t.Errorf("no token: exit code %d, %s", code, stderr)
	}
	if code, _, stderr = run(t, "status", "--admin", r.tcp, "--token", token); code != exitOK {
		t.Errorf("with a token: %s", stderr)
	}
	if code, _, stderr = run(t, "status", "--admin", "http://x"); code != exitUsage || !strings.Contains(stderr, "unix:///PATH") {
		t.Errorf("a wrong address: exit code %d, %s", code, stderr)
	}
	if os.Getuid() != 0 {
		if err := os.Chmod(strings.TrimPrefix(r.admin, "unix://"), 0); err != nil {
			t.Fatal(err)
		}
		if code, _, stderr = r.run("status"); code != exitFailed || !strings.Contains(stderr, "no permission") {
			t.Errorf("no permission: exit code %d, %s", code, stderr)
		}
	}
	r.stop()
	for _, at := range []string{r.admin, r.tcp} {
		code, _, stderr := run(t, "status", "--admin", at)
		if code != exitFailed || !strings.Contains(stderr, "nothing listens there") || strings.Count(stderr, "\n") != 1 {
			t.Errorf("nobody there: exit code %d, %s", code, stderr)
		}
	}
}

func TestEnvironment(t *testing.T) {
	r := newRig(t, newDaemon())
	t.Setenv("PENSTOCK_ADMIN", r.tcp)
	t.Setenv("PENSTOCK_TOKEN", token)
	if code, _, stderr := run(t, "log"); code != exitOK {
		t.Error(stderr)
	}
}

// Members of groups that a URL stands for are named by it.
func TestMemberArg(t *testing.T) {
	for text, want := range map[string]memberArg{
		"web/a":                                     {"web", "a"},
		"web/tcp://10.0.0.1:80":                     {"web", "tcp://10.0.0.1:80"},
		"tcp://10.0.0.1:80":                         {"tcp://10.0.0.1:80", "tcp://10.0.0.1:80"},
		"tcp://app.test:80/tcp://10.0.0.1:80":       {"tcp://app.test:80", "tcp://10.0.0.1:80"},
		"tcp://[::1]:80/tcp://[::1]:80":             {"tcp://[::1]:80", "tcp://[::1]:80"},
		"unix:///run/a/b.sock":                      {"unix:///run/a/b.sock", "unix:///run/a/b.sock"},
		"unix:///run/a/b.sock/unix:///run/a/b.sock": {"unix:///run/a/b.sock", "unix:///run/a/b.sock"},
		"unix:@name":                                {"unix:@name", "unix:@name"},
		"echo:":                                     {"echo:", "echo:"},
	} {
		var got memberArg
		if err := got.UnmarshalText([]byte(text)); err != nil || got != want {
			t.Errorf("%s: %+v, %v, want %+v", text, got, err, want)
		}
	}
}
