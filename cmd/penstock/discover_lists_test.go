package main

import (
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/testfleet"
	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
)

// Members of a list, of Nomad, and of a Docker daemon at its socket come and go in a sandbox.
func TestMembersInLists(t *testing.T) {
	t.Parallel()
	one, two := strings.TrimPrefix(echoServer(t), "tcp://"), strings.TrimPrefix(echoServer(t), "tcp://")
	port := func(at string) string { _, port, _ := net.SplitHostPort(at); return port }
	lists, nomad := testfleet.NewDocuments(t), testfleet.NewDocuments(t)
	docker := testfleet.NewDocker(t, filepath.Join(t.TempDir(), "docker.sock"))
	set := func(at string) {
		lists.Set("/members", fmt.Sprintf(`[{"targets": ["%s"]}]`, at))
		nomad.Set("/v1/service/web", fmt.Sprintf(`[{"ID": "1", "Address": "127.0.0.1", "Port": %s}]`, port(at)))
		docker.Run("one", fmt.Sprintf(`"HostConfig": {"NetworkMode": "host"}, "Labels": {"penstock.group": "web", "penstock.port": "%s"}`, port(at)))
	}
	set(one)
	d := runFile(t, `
reload: {watch: false}
registries:
  lists: {http: ["{0}"]}
  nomad: {nomad: ["{1}"]}
  docker: {docker: "{2}"}
listeners:
  l: {listen: "tcp://127.0.0.1:0", to: list}
  n: {listen: "tcp://127.0.0.1:0", to: nomad}
  d: {listen: "tcp://127.0.0.1:0", to: docker}
groups:
  list: {discover: [{http: /members, every: 1s}]}
  nomad: {discover: [{nomad: web}]}
  docker: {discover: [{docker: web}]}
`, lists.URL, nomad.URL, docker.URL)
	members := func() (all string) {
		groups, err := d.admin.Groups(d.ctx())
		if err != nil {
			t.Fatal(err)
		}
		for _, g := range groups.Groups {
			for _, m := range g.Members {
				all += g.Name + " " + m.Name + " " + m.State + "\n"
			}
		}
		return all
	}
	all := func(at string) string {
		return "list tcp://" + at + " up\nnomad tcp://" + at + " up\ndocker tcp://" + at + " up\n"
	}
	echo := func(listener string) {
		t.Helper()
		mustEcho(t, testnet.Dial(t, d.at(listener)), 1000, 100)
	}
	testwait.Until(t, "the first members", func() bool { return members() == all(one) })
	for _, l := range []string{"l", "n", "d"} {
		echo(l)
	}
	set(two)
	testwait.Until(t, "other members", func() bool { return members() == all(two) })
	for _, l := range []string{"l", "n", "d"} {
		echo(l)
	}
}
