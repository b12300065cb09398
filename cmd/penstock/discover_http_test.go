package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/testfleet"
	"github.com/penstock/penstock/internal/testwait"
)

// Members of Consul and Kubernetes drain and come back while a flow goes on, the same lookup serves two groups with one
// watch, and a registry that answers nonsense, or that its service is gone, empties no group.
func TestMembersInConsulAndKubernetes(t *testing.T) {
	t.Parallel()
	ports := [2]int{}
	for i := range ports {
		_, port, _ := net.SplitHostPort(strings.TrimPrefix(echoServer(t), "tcp://"))
		ports[i], _ = strconv.Atoi(port)
	}
	consul, kube := testfleet.NewConsul(t), testfleet.NewKubernetes(t)
	// set makes the first server drain, or not, beside the second one.
	setConsul := func(draining bool) {
		one := testfleet.ConsulInstance{ID: "one", Node: "n", Address: "127.0.0.1", Port: ports[0]}
		if draining {
			one.Checks = map[string]string{"_node_maintenance": "critical"}
		}
		consul.Set("web", one, testfleet.ConsulInstance{ID: "two", Node: "n", Address: "127.0.0.1", Port: ports[1]})
	}
	setKube := func(draining bool) {
		slice := func(port int, terminating bool) string {
			return fmt.Sprintf(`{"addressType":"IPv4","ports":[{"name":"http","port":%d}],"endpoints":[{"addresses":["127.0.0.1"],"conditions":{"ready":%v,"serving":true,"terminating":%v}}]}`, port, !terminating, terminating)
		}
		kube.Put("shop", "web-1", "web", slice(ports[0], draining))
		kube.Put("shop", "web-2", "web", slice(ports[1], false))
	}
	setConsul(false)
	setKube(false)
	d := runFile(t, `
reload: {watch: false}
registries:
  dc1: {consul: ["{0}"]}
  kube: {kubernetes: "{1}", tls: {ca: {2}}}
listeners:
  c: {listen: "tcp://127.0.0.1:0", to: consul}
  k: {listen: "tcp://127.0.0.1:0", to: kube}
groups:
  consul: {discover: [{consul: web}]}
  kube: {discover: [{kubernetes: shop/web, port-name: http}]}
  again: {discover: [{kubernetes: shop/web, port-name: http}]}
`, consul.URL, kube.URL, kube.CAFile())
	states := func(group string) string {
		groups, err := d.admin.Groups(d.ctx())
		if err != nil {
			t.Fatal(err)
		}
		var list []string
		for _, g := range groups.Groups {
			for _, m := range g.Members {
				if g.Name == group {
					list = append(list, strings.Replace(strings.Replace(m.Name, fmt.Sprint(ports[0]), "one", 1), fmt.Sprint(ports[1]), "two", 1)+" "+m.State)
				}
			}
		}
		if ports[1] < ports[0] && len(list) == 2 {
			list[0], list[1] = list[1], list[0]
		}
		return strings.Join(list, ", ")
	}
	lists := func() (n int) {
		for _, r := range kube.Requests() {
			if r.URL.Query().Get("watch") == "" {
				n++
			}
		}
		return n
	}
	// says waits for a line about a group.
	says := func(group, msg string) {
		t.Helper()
		testwait.Until(t, group+": "+msg, func() bool {
			d.mu.Lock()
			defer d.mu.Unlock()
			return slices.ContainsFunc(d.lines, func(l map[string]any) bool { return l["msg"] == msg && strings.Contains(fmt.Sprint(l["group"]), group) })
		})
	}
	const both, drained = "tcp://127.0.0.1:one up, tcp://127.0.0.1:two up", "tcp://127.0.0.1:one drained, tcp://127.0.0.1:two up"
	for _, c := range []struct {
		listener, group string
		set             func(bool)
		fault           func(http.HandlerFunc)
		empty           func()
	}{
		{"c", "consul", setConsul, consul.Fault, func() { consul.Set("web") }},
		{"k", "kube", setKube, kube.Fault, func() { kube.Delete("shop", "web-1"); kube.Delete("shop", "web-2") }},
	} {
		testwait.Until(t, "the members of "+c.group, func() bool { return states(c.group) == both })
		var flows []net.Conn
		for range 2 { // one to each
			conn, err := net.Dial("tcp", d.at(c.listener).String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			flows = append(flows, conn)
		}
		c.set(true)
		testwait.Until(t, "a drained member of "+c.group, func() bool { return states(c.group) == drained })
		c.set(false)
		testwait.Until(t, "both members of "+c.group, func() bool { return states(c.group) == both })
		if c.group == "kube" { // the fault needs others
			if n := lists(); n != 1 {
				t.Errorf("two groups use one lookup, and there are %d lists", n)
			}
		}
		c.fault(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, "[")
		})
		if c.group == "kube" {
			kube.CloseWatches()
		}
		says(c.group, "lookup failed; its members stay")
		c.fault(nil)
		says(c.group, "lookup works again")
		c.empty()
		says(c.group, "the answer lacks too many members at once (lookups.vanish); they stay")
		if got := states(c.group); got != both {
			t.Errorf("the service is gone, and its members are %q", got)
		}
		for _, conn := range flows {
			if _, err := io.WriteString(conn, "hello\n"); err != nil {
				t.Error(err)
			}
			if line, err := bufio.NewReader(conn).ReadString('\n'); err != nil || line != "hello\n" {
				t.Errorf("a flow of %s: %q, %v", c.group, line, err)
			}
		}
	}
}

// A pod with two stacks is one member, in the sandbox too.
func TestMembersWithTwoStacks(t *testing.T) {
	t.Parallel()
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(echoServer(t), "tcp://"))
	kube := testfleet.NewKubernetes(t)
	for _, s := range []struct{ name, family, address string }{{"web-6", "IPv6", "::1"}, {"web-4", "IPv4", "127.0.0.1"}} {
		kube.Put("shop", s.name, "web", fmt.Sprintf(`{"addressType":%q,"ports":[{"name":"http","port":%s}],"endpoints":[{"addresses":[%q],"targetRef":{"kind":"Pod","name":"web-x","uid":"7c1e"}}]}`, s.family, port, s.address))
	}
	d := runFile(t, `
registries:
  kube: {kubernetes: "{0}", tls: {ca: {1}}}
listeners:
  one: {listen: "tcp://127.0.0.1:0", to: one}
groups:
  one: {discover: [{kubernetes: shop/web}]}
  four: {discover: [{kubernetes: shop/web, family: ipv4}]}
  six: {discover: [{kubernetes: shop/web, family: ipv6}]}
  any: {discover: [{kubernetes: shop/web, family: any}]}
`, kube.URL, kube.CAFile())
	want := map[string]string{"one": "[tcp://127.0.0.1:{port}]", "four": "[tcp://127.0.0.1:{port}]", "six": "[tcp://[::1]:{port}]", "any": "[tcp://127.0.0.1:{port} tcp://[::1]:{port}]"}
	var got map[string]string
	testwait.Until(t, "each group has its members", func() bool {
		groups, err := d.admin.Groups(d.ctx())
		if err != nil {
			t.Fatal(err)
		}
		got = map[string]string{}
		for _, g := range groups.Groups {
			var list []string
			for _, m := range g.Members {
				list = append(list, strings.Replace(m.Name, ":"+port, ":{port}", 1))
			}
			slices.Sort(list)
			got[g.Name] = fmt.Sprint(list)
		}
		return fmt.Sprint(got) == fmt.Sprint(want)
	})
}
