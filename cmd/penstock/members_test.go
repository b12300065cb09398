package main

import (
	"bufio"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/internal/testwait"
)

// Operators add, move and remove members of a running daemon. A reload keeps what they did, penstock
// diff shows it, and its YAML put into the file is the same again.
func TestMembersAtRunTime(t *testing.T) {
	t.Parallel()
	one, two, three := speak(t, "one"), speak(t, "two"), speak(t, "three")
	const text = `
reload: {watch: false}
listeners: {a: {listen: "tcp://127.0.0.1:0", to: all, removed: {live-flows: close}}}
groups:
  all: {members: [{name: one, to: "{0}"}]}
`
	d := runFile(t, text, one.url())
	socket := "unix://" + d.dir + "/admin.sock"
	penstock := func(args ...string) string {
		t.Helper()
		out, code := command(t, append(args, "--admin", socket)...)
		if code != 0 {
			t.Fatalf("penstock %s: %d: %s", strings.Join(args, " "), code, out)
		}
		return out
	}
	refused := func(want string, args ...string) {
		t.Helper()
		if out, code := command(t, append(args, "--admin", socket)...); code == 0 || !strings.Contains(out, want) {
			t.Errorf("penstock %s: %d: %s; want: %s", strings.Join(args, " "), code, out, want)
		}
	}
	// served are the names of those who serve n clients.
	served := func(n int) map[string]int {
		names := map[string]int{}
		for range n {
			c := d.to("a")
			names[name(t, c)]++
			c.Close()
		}
		return names
	}
	only := func(names ...string) {
		t.Helper()
		testwait.Until(t, "clients go to "+strings.Join(names, ", "), func() bool {
			got := served(6)
			for _, n := range names {
				if got[n] == 0 {
					return false
				}
			}
			return len(got) == len(names)
		})
	}
	if out := penstock("diff"); !strings.Contains(out, "The file has not changed") || !strings.Contains(out, "Members are as the file has them") {
		t.Error(out)
	}

	// Added, with a weight, and then moved: its flows end as the route says.
	penstock("members", "add", "all", two.url(), "--name", "extra", "--weight", "2")
	only("one", "two")
	var before []net.Conn
	for len(before) < 2 {
		if c := d.to("a"); name(t, c) == "two" {
			before = append(before, c)
		}
	}
	penstock("members", "set", "all/extra", "--address", three.url())
	only("one", "three")
	for _, c := range before {
		mustEnd(t, c)
	}
	penstock("weight", "all/extra", "7")
	// One of the file is removed, and the other one drained.
	penstock("members", "remove", "all/one")
	only("three")

	// Mistakes change nothing, and say what is allowed.
	refused("another name", "members", "add", "all", one.url(), "--name", "extra")
	refused("the only member", "members", "remove", "all/extra")
	refused("no member", "members", "remove", "all/nobody")
	refused("no group", "members", "add", "nobody", one.url())
	refused("does not carry streams", "members", "add", "all", "udp://127.0.0.1:1")
	refused("has 3 ports, and listener a has 1", "members", "add", "all", "tcp://127.0.0.1:1-3")
	refused("unknown scheme", "members", "add", "all", "http://127.0.0.1")
	refused("leads back to listener a", "members", "add", "all", url(d.at("a")))
	refused("nothing to change", "members", "set", "all/extra")

	check := func() {
		t.Helper()
		m, err := d.admin.MemberChanges(d.ctx())
		want := []api.MemberDifference{
			{Group: "all", Member: "extra", What: "added", Fields: []api.FieldDifference{{Name: "to", Running: three.url()}, {Name: "weight", File: "2", Running: "7"}}},
			{Group: "all", Member: "one", What: "removed", Fields: []api.FieldDifference{{Name: "to", File: one.url()}}},
		}
		if err != nil || !reflect.DeepEqual(m.Changes, want) {
			t.Errorf("%v, %+v, want %+v", err, m.Changes, want)
		}
	}
	check()
	if out := penstock("status"); !strings.Contains(out, "2 members differ") {
		t.Error(out)
	}
	if out := penstock("groups"); !strings.Contains(out, "one: removed at run time") || !regexp.MustCompile(`(?m)^extra .*  added$`).MatchString(out) {
		t.Error(out)
	}
	// A reload keeps it all.
	d.write(t, text+"# changed\n", one.url())
	d.reload()
	check()
	only("three")
	diff := penstock("diff")
	for _, want := range []string{"all/extra", "added", "weight 7", "all/one", "removed"} {
		if !strings.Contains(diff, want) {
			t.Errorf("no %s in\n%s", want, diff)
		}
	}
	// What it prints for the file is a configuration, and then nothing differs.
	yaml := penstock("diff", "--yaml")
	whole := strings.Split(text, "groups:")[0] + yaml
	d.write(t, whole, one.url())
	d.reload()
	if m, err := d.admin.MemberChanges(d.ctx()); err != nil || len(m.Changes) != 0 {
		t.Errorf("%v, %+v", err, m)
	}
	only("three")
	g, err := d.admin.Group(d.ctx(), "all")
	if err != nil || len(g.Members) != 1 || g.Members[0].Weight != 7 || g.Members[0].Name != "extra" {
		t.Errorf("%v, %+v", err, g.Members)
	}

	// Restored, a member is as the file has it.
	penstock("members", "add", "all", one.url())
	penstock("members", "set", "all/extra", "--address", two.url(), "--weight", "3")
	penstock("members", "remove", "all/extra")
	only("one")
	penstock("restore", "all/extra")
	penstock("members", "remove", "all/"+one.url())
	only("three")
	if m, err := d.admin.MemberChanges(d.ctx()); err != nil || len(m.Changes) != 0 {
		t.Errorf("%v, %+v", err, m)
	}
	// The last one that takes flows can be drained and disabled, which is said.
	const none = "all: no member takes new flows now"
	for _, args := range [][]string{{"drain", "all/extra"}, {"drain", "all/extra", "--wait"}, {"disable", "all/extra"}, {"weight", "all/extra", "7"}} {
		if out := penstock(args...); !strings.Contains(out, none) {
			t.Errorf("penstock %s: %s", strings.Join(args, " "), out)
		}
	}
	if out := penstock("enable", "all/extra"); strings.Contains(out, none) {
		t.Error(out)
	}
	only("three")
	// All of it is in the list of events, with who it was.
	events, err := d.admin.Events(d.ctx(), 0)
	if err != nil {
		t.Fatal(err)
	}
	heard := map[string]bool{}
	for _, e := range events.Events {
		if e.Kind == "member" && e.By != "" {
			heard[strings.Fields(e.Message)[1]] = true
		}
	}
	for _, want := range []string{"added", "moved", "removed", "set"} {
		if !heard[want] {
			t.Errorf("no event says that a member was %s", want)
		}
	}
	// The next process knows only the file.
	if text, err := os.ReadFile(filepath.Join(d.dir, "penstock.yaml")); err != nil || !strings.Contains(string(text), "extra") {
		t.Errorf("%v: %s", err, text)
	}
}

// What penstock diff --yaml prints is a configuration, whatever operators have done: also after a
// member without a name was moved, and for the only kinds of names that the file may have.
func TestMembersWrittenBackAreAConfiguration(t *testing.T) {
	t.Parallel()
	one, two, three := speak(t, "one"), speak(t, "two"), speak(t, "three")
	const text = `
reload: {watch: false}
listeners: {a: {listen: "tcp://127.0.0.1:0", to: all}}
groups:
  all: {members: ["{0}", "{1}"]}
`
	d := runFile(t, text, one.url(), two.url())
	for _, name := range []string{"${HOME}", "a b", "a/b", "\u009b2J", "-x", strings.Repeat("x", 64), "tcp://10.0.0.1:1"} {
		_, err := d.admin.AddMember(d.ctx(), "all", api.NewMember{Name: name, Address: three.url()})
		if err == nil || !strings.Contains(err.Error(), "name of 1 to 63 letters") {
			t.Errorf("a member named %q: %v", name, err)
		}
	}
	if _, err := d.admin.SetMember(d.ctx(), "all", one.url(), api.MemberChange{Address: three.url()}); err != nil {
		t.Fatal(err)
	}
	m, err := d.admin.MemberChanges(d.ctx())
	if err != nil || len(m.Changes) != 1 {
		t.Fatalf("%v, %+v", err, m)
	}
	d.write(t, strings.Split(text, "groups:")[0]+m.YAML)
	if _, err := d.admin.Reload(d.ctx()); err != nil {
		t.Fatalf("%v\n%s", err, m.YAML)
	}
	if m, err := d.admin.MemberChanges(d.ctx()); err != nil || len(m.Changes) != 0 {
		t.Errorf("%v, %+v", err, m)
	}
	g, err := d.admin.Group(d.ctx(), "all")
	if err != nil || len(g.Members) != 2 || g.Members[0].Address != three.url() || g.Members[1].Address != two.url() {
		t.Errorf("%v, %+v", err, g.Members)
	}
	for range 4 {
		c := d.to("a")
		if got := name(t, c); got != "two" && got != "three" {
			t.Errorf("a client was served by %s", got)
		}
		c.Close()
	}
}

// A change of a member is made as a whole, or not at all.
func TestMemberChangeIsWhole(t *testing.T) {
	t.Parallel()
	one, two := speak(t, "one"), speak(t, "two")
	_, port, err := net.SplitHostPort(strings.TrimPrefix(one.url(), "tcp://"))
	if err != nil {
		t.Fatal(err)
	}
	d := runFile(t, `
listeners: {a: {listen: "tcp://127.0.0.1:0", to: all}}
groups: {all: {members: [{name: named, to: "tcp://localhost:{0}"}]}}
`, port)
	testwait.Until(t, "localhost is found", func() bool {
		g, err := d.admin.Group(d.ctx(), "all")
		return err == nil && len(g.Members) > 0
	})
	weight := 9
	// An address of a name cannot be moved alone.
	_, err = d.admin.SetMember(d.ctx(), "all", one.url(), api.MemberChange{State: "drain", Weight: &weight, Address: two.url()})
	if err == nil || !strings.Contains(err.Error(), "one address of member") {
		t.Errorf("%v", err)
	}
	g, err := d.admin.Group(d.ctx(), "all")
	if err != nil || len(g.Members) == 0 {
		t.Fatalf("%v, %+v", err, g)
	}
	for _, m := range g.Members {
		if m.Weight != 1 || m.State != "up" {
			t.Errorf("%s %s: %s, weight %d after a change that was refused", m.Name, m.Address, m.State, m.Weight)
		}
	}
	c := d.to("a")
	if got := name(t, c); got != "one" {
		t.Errorf("a client was served by %q", got)
	}
	c.Close()
}

// The address of a member with a range of ports, as the API shows it, is one of its names.
func TestRangeMemberByAddress(t *testing.T) {
	t.Parallel()
	host := ownAddr(40)
	speakPorts(t, host, 30000, 30002)
	at := "tcp://" + host + ":30000-30002"
	d := runFile(t, `
listeners: {a: {listen: "tcp://{0}:31000-31002", to: all}}
groups: {all: {members: [{name: range, to: "{1}"}]}}
`, host, at)
	dial := func() net.Conn {
		t.Helper()
		c, err := net.Dial("tcp", net.JoinHostPort(host, "31001"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	c := dial()
	if line, err := bufio.NewReader(c).ReadString('\n'); err != nil || line != "port 30001\n" {
		t.Fatalf("%v, %q", err, line)
	}
	for _, state := range []string{"drain", "enable", "disable"} {
		m, err := d.admin.SetMember(d.ctx(), "all", at, api.MemberChange{State: state})
		want := map[string]string{"drain": "drained", "enable": "up", "disable": "disabled"}[state]
		if err != nil || len(m.Members) != 1 || m.Members[0].State != want {
			t.Errorf("%s: %v, %+v", state, err, m)
		}
	}
	mustEnd(t, c)
}
