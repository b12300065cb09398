package kube

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// host is the address of the API server and the daemon; the members have those that follow it.
const host = "10.77.0.1"

func member(n int) string { return fmt.Sprintf("10.77.0.%d", 10+n) }

// TestMembersFromKubernetes follows a service from its first endpoint on, with checks of what flows get through the daemon.
func TestMembersFromKubernetes(t *testing.T) {
	addresses := []string{host, "fd00:77::1"}
	for n := range 6 {
		addresses = append(addresses, member(n))
	}
	prepareNamespace(t, addresses...)
	for _, a := range addresses[1:] {
		serveName(t, a)
	}
	store := startEtcd(t)
	api := startAPIServer(t, store.url)
	api.post("/api/v1/namespaces", `{"metadata":{"name":"shop"}}`)
	api.post("/api/v1/namespaces/shop/serviceaccounts", `{"metadata":{"name":"penstock"}}`)
	api.post("/api/v1/namespaces/shop/services", `{"metadata":{"name":"web"},"spec":{"ports":[{"name":"http","port":80,"targetPort":8080}]}}`)

	dir := t.TempDir()
	token := filepath.Join(dir, "token")
	replaceFile(t, token, api.newToken("penstock"))
	d := startDaemon(t, fmt.Sprintf(`
registries:
  kube: {kubernetes: "%s", token-file: %s, tls: {ca: %s}}
listeners:
  front: {listen: "tcp://%s:80", to: web}
groups:
  web:
    discover: [{kubernetes: shop/web, port-name: http}]
    lookups: {keep: 2s}
    retries: 0
`, api.url, token, api.ca, host))

	// Without a role, the API server says what is missing.
	d.says("endpointslices.discovery.k8s.io is forbidden")
	for path, object := range manifest(t) {
		api.post(path, object)
	}

	api.put("web-1", "IPv4", ready(member(0)), ready(member(1)))
	d.reaches(member(0), member(1))
	t.Log("two endpoints: both get flows")

	old := d.open(member(0))
	api.put("web-1", "IPv4", terminating(member(0)), ready(member(1)))
	d.reaches(member(1))
	old.echo()
	t.Log("one terminates: it gets no new flows, and its flow goes on")

	api.put("web-1", "IPv4", ready(member(1)))
	api.put("web-2", "IPv4", ready(member(2)), ready(member(1)), notReady(member(3)))
	api.put("web-3", "IPv6", ready("fd00:77::1"))
	d.reaches(member(1), member(2), "fd00:77::1")
	t.Log("it is removed, another slice overlaps, one endpoint is not ready, and one is of IPv6")
	old.close()

	api.remove("web-3")
	api.put("web-2", "IPv4", terminating(member(2)))
	api.put("web-1", "IPv4", notReady(member(1)))
	d.reaches(member(2))
	t.Log("none is ready: the one that terminates but serves gets flows")

	api.put("web-1", "IPv4", ready(member(0)))
	api.remove("web-2")
	d.reaches(member(0))
	kept := d.open(member(0))
	api.kill()
	d.says("lookup failed; its members stay")
	d.reaches(member(0))
	kept.echo()
	t.Log("the API server is killed: members stay")
	before := len(api.requests())
	api.start()
	api.put("web-1", "IPv4", ready(member(0)), ready(member(4)))
	d.reaches(member(0), member(4))
	kept.echo()
	t.Logf("it is started again: the daemon asks by %q", api.requests()[before:])

	// The version of the daemon's watch is compacted away while the daemon is not connected.
	api.kill()
	d.says("lookup failed; its members stay")
	d.pause()
	api.start()
	for i := range 5 {
		api.put("web-2", "IPv4", ready(member(i)))
	}
	api.put("web-2", "IPv4", ready(member(5)))
	api.put("web-1", "IPv4", ready(member(1)))
	store.compact()
	api.kill()
	api.start()
	before = len(api.requests())
	d.resume()
	d.reaches(member(1), member(5))
	asked := api.requests()[before:]
	if want := []string{"watch", "list", "watch"}; !slices.Equal(asked, want) {
		t.Errorf("after a compaction the daemon asks by %q, want %q", asked, want)
	}
	kept.echo()
	t.Logf("its version is compacted: the daemon asks by %q", asked)

	// All tokens of a service account end with it.
	api.delete("/api/v1/namespaces/shop/serviceaccounts/penstock")
	api.post("/api/v1/namespaces/shop/serviceaccounts", `{"metadata":{"name":"penstock"}}`)
	api.kill()
	api.start()
	api.says("Unable to authenticate the request")
	d.reaches(member(1), member(5))
	replaceFile(t, token, api.newToken("penstock"))
	api.put("web-2", "IPv4", ready(member(2)))
	d.reaches(member(1), member(2))
	t.Log("its token is not valid any more: members stay, and the new token is read")

	// A service that vanishes is doubted for lookups.keep.
	api.remove("web-1")
	api.remove("web-2")
	d.says("the answer lacks too many members at once (lookups.vanish); they stay")
	d.says("members removed")
	t.Log("all slices are removed: members stay for the time of lookups.keep, which is 2 s here")
}

// manifest returns the objects of the manifest in docs/fleet.md by the path where they are created.
func manifest(t *testing.T) map[string]string {
	b, err := os.ReadFile(*docs)
	if err != nil {
		t.Fatal(err)
	}
	_, text, ok := strings.Cut(string(b), "```yaml\n# rbac.yaml\n")
	text, _, end := strings.Cut(text, "```")
	if !ok || !end {
		t.Fatalf("%s has no rbac.yaml", *docs)
	}
	objects := map[string]string{}
	for _, object := range strings.Split(text, "---\n") {
		for line := range strings.Lines(object) {
			if kind, ok := strings.CutPrefix(line, "kind: "); ok && kind != "ServiceAccount\n" {
				objects["/apis/rbac.authorization.k8s.io/v1/namespaces/shop/"+strings.ToLower(strings.TrimSpace(kind))+"s"] = object
			}
		}
	}
	if len(objects) != 2 {
		t.Fatalf("%d objects in the manifest, want a Role and a RoleBinding", len(objects))
	}
	return objects
}

func endpoint(address string, ready, serving, terminating bool) string {
	return fmt.Sprintf(`{"addresses":[%q],"conditions":{"ready":%v,"serving":%v,"terminating":%v},"zone":"a"}`, address, ready, serving, terminating)
}

func ready(address string) string       { return endpoint(address, true, true, false) }
func notReady(address string) string    { return endpoint(address, false, false, false) }
func terminating(address string) string { return endpoint(address, false, true, true) }

// eventually repeats try until it returns no problem.
func eventually(t *testing.T, what string, try func() string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	for {
		problem := try()
		if problem == "" {
			return
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("%s: %s", what, problem)
		}
	}
}
