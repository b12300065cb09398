package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/testfleet"
	"github.com/penstock/penstock/internal/testwait"
)

// xdsPlane is a control plane of go-control-plane, whose resources are those of a file.
type xdsPlane struct {
	*testfleet.Server
	t              *testing.T
	file, recorded string
}

func newXDSPlane(t *testing.T, resources ...string) *xdsPlane {
	t.Helper()
	dir := t.TempDir()
	p := &xdsPlane{t: t, file: filepath.Join(dir, "resources.json"), recorded: filepath.Join(dir, "record")}
	p.serve(resources...)
	p.Server = testfleet.Start(t, "ads", "-resources", p.file, "-record", p.recorded)
	return p
}

// serve replaces the resources.
func (p *xdsPlane) serve(resources ...string) {
	p.t.Helper()
	next := p.file + ".next"
	err := os.WriteFile(next, []byte(`{"resources": [`+strings.Join(resources, ",\n")+`]}`), 0o600)
	if err == nil {
		err = os.Rename(next, p.file)
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// said returns how many requests with all these texts the control plane has got.
func (p *xdsPlane) said(texts ...string) (n int) {
	p.t.Helper()
	b, err := os.ReadFile(p.recorded)
	if err != nil {
		p.t.Fatal(err)
	}
	for s := bufio.NewScanner(bytes.NewReader(b)); s.Scan(); {
		var e struct{ Kind string }
		all := json.Unmarshal(s.Bytes(), &e) == nil && e.Kind == "request"
		for _, text := range texts {
			all = all && strings.Contains(s.Text(), text)
		}
		if all {
			n++
		}
	}
	return n
}

// path is what -c takes.
func (p *xdsPlane) path() string { return "xds" + strings.TrimPrefix(p.URL, "http") }

const typeOf = `"@type": "type.googleapis.com/envoy.`

// tcpListener is a Listener that leads to a cluster.
func tcpListener(name, cluster string, port int, more string) string {
	return fmt.Sprintf(`{%sconfig.listener.v3.Listener", "name": %q, "address": {"socketAddress": {"address": "127.0.0.1", "portValue": %d}},
		"filterChains": [{"filters": [{"name": "tcp", "typedConfig": {%sextensions.filters.network.tcp_proxy.v3.TcpProxy", "statPrefix": "x", "cluster": %q %s}}]}]}`, typeOf, name, port, typeOf, cluster, more)
}

// edsCluster is a Cluster of type EDS.
func edsCluster(name, more string) string {
	return fmt.Sprintf(`{%sconfig.cluster.v3.Cluster", "name": %q, "type": "EDS", "edsClusterConfig": {"edsConfig": {"ads": {}, "resourceApiVersion": "V3"}}, "connectTimeout": "1s" %s}`, typeOf, name, more)
}

// assignment has endpoints, each an object without braces.
func assignment(name string, endpoints ...string) string {
	return fmt.Sprintf(`{%sconfig.endpoint.v3.ClusterLoadAssignment", "clusterName": %q, "endpoints": [{"lbEndpoints": [{%s}]}]}`, typeOf, name, strings.Join(endpoints, "}, {"))
}

func endpointAt(a net.Addr, more string) string {
	at := a.(*net.TCPAddr)
	return fmt.Sprintf(`"endpoint": {"address": {"socketAddress": {"address": %q, "portValue": %d}}} %s`, at.IP, at.Port, more)
}

// runXDS starts the daemon with a file and a control plane.
func runXDS(t *testing.T, p *xdsPlane, state string, args ...string) *configured {
	t.Helper()
	dir := shortDir(t)
	c := &configured{dir: dir, file: filepath.Join(dir, "base.yaml")}
	c.write(t, "drain: 1h\n")
	c.begin(t, exec.Command(binary, append([]string{"run", "-c", c.file, "-c", p.path(), "--state", state, "--node", "relay-1"}, args...)...))
	return c
}

// A relay gets everything from a control plane: listeners, groups and members; members change without a reload; what
// cannot be applied is refused with its reason; and it starts and serves while the control plane is away.
func TestXDS(t *testing.T) {
	t.Parallel()
	one, two := speak(t, "one"), speak(t, "two")
	p := newXDSPlane(t, edsCluster("web", ""), tcpListener("front", "web", 0, ""), assignment("web", endpointAt(one.Addr(), "")))
	state := t.TempDir()
	d := runXDS(t, p, state)
	served := func(d *configured, want string) {
		t.Helper()
		testwait.Until(t, want+" serves", func() bool {
			c, err := net.Dial("tcp", d.at("front").String())
			if err != nil {
				return false
			}
			defer c.Close()
			c.SetDeadline(time.Now().Add(patience))
			got, _ := readName(c)
			return got == want
		})
	}
	served(d, "one")
	d.wait("experimental", 1)
	check := exec.Command(binary, "check", "-c", p.path())
	if out, err := check.CombinedOutput(); err != nil || !strings.Contains(string(out), p.path()+": warning: Envoy's Listeners and Clusters as a configuration are experimental") {
		t.Errorf("check: %v\n%s", err, out)
	}
	testwait.Until(t, "all three types are accepted", func() bool {
		return p.said(`"nonce"`, "Listener") > 0 && p.said(`"nonce"`, "v3.Cluster\"") > 0 && p.said(`"nonce"`, "ClusterLoadAssignment") > 0
	})
	reloads := len(d.wait("ready", 1))
	p.serve(edsCluster("web", ""), tcpListener("front", "web", 0, ""), assignment("web", endpointAt(two.Addr(), "")))
	served(d, "two")
	if n := len(d.wait("ready", 1)); n != reloads {
		t.Errorf("%d reloads by new members", n-reloads)
	}
	// One endpoint twice, and one that is wrong, are told, and harm no other one.
	p.serve(edsCluster("web", ""), tcpListener("front", "web", 0, ""),
		assignment("web", endpointAt(one.Addr(), ""), endpointAt(one.Addr(), ""), endpointAt(two.Addr(), `, "healthStatus": "DRAINING"`), endpointAt(&net.TCPAddr{IP: net.IPv4(10, 0, 0, 1)}, "")))
	served(d, "one")
	for _, line := range d.wait("member left out", 2) {
		if problem := fmt.Sprint(line["problem"]); !strings.Contains(problem, "is there twice; the one of priority 0 is used") && !strings.Contains(problem, "needs a port from 1 to 65535; the endpoint is left out") {
			t.Errorf("%v", line)
		}
	}
	p.serve(edsCluster("web", ""), tcpListener("front", "web", 0, ""), assignment("web", endpointAt(two.Addr(), "")))
	served(d, "two")
	// The package that reads Envoy's resources refuses this one, and the daemon that.
	p.serve(edsCluster("web", ""), tcpListener("front", "web", 0, `, "tunnelingConfig": {"hostname": "x"}`), assignment("web", endpointAt(two.Addr(), "")))
	testwait.Until(t, "the reason reaches the control plane", func() bool {
		return p.said("Listener front: filter_chains[0].filters[0].typed_config.tunneling_config: not supported") == 1
	})
	p.serve(edsCluster("web", `, "healthChecks": [{"timeout": "1s", "interval": "1s", "unhealthyThreshold": 1000, "healthyThreshold": 1, "tcpHealthCheck": {}}]`), tcpListener("front", "web", 0, ""), assignment("web", endpointAt(two.Addr(), "")))
	testwait.Until(t, "the reason reaches the control plane", func() bool {
		return p.said("Cluster web: health_checks[0].unhealthy_threshold: ") > 0
	})
	served(d, "two")
	// The control plane goes. Nothing changes, and the relay starts without it.
	p.Kill()
	served(d, "two")
	d.signal(os.Interrupt)
	d.mustExit(0)
	again := runXDS(t, p, state)
	p.serve(edsCluster("web", ""), tcpListener("front", "web", 0, ""), assignment("web", endpointAt(one.Addr(), "")))
	p.Restart()
	served(again, "one")
}
