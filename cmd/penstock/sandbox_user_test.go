package main

import (
	"net"
	"os"
	"os/exec"
	"testing"

	"github.com/penstock/penstock/internal/testwait"
)

// asUser starts a daemon whose worker, of another user, can read its configuration.
func asUser(t *testing.T, text string, values ...any) *kept {
	t.Helper()
	dir := shortDir(t)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	k := &kept{configured: &configured{dir: dir, file: dir + "/penstock.yaml"}}
	k.write(t, text, values...)
	k.begin(t, exec.Command(binary, "run", "-c", k.file))
	k.endWorker(t)
	k.showLog()
	testwait.Until(t, "the API answers", k.answers)
	return k
}

// The flows of UDP listeners that are removed have sockets of their own, at the same port. So the listeners' must belong to whoever the worker
// is then: the user of the sandbox; root, where a program that is linked with cgo keeps a capability (the race job); another user, after a reload.
func TestUserOfSockets(t *testing.T) {
	t.Parallel()
	const text = "reload: {watch: false}\nlisteners: {stays: {listen: 'tcp://127.0.0.1:0', to: 'echo:'}{0}}\nkeeper: {keep-after: 0, healthy-after: 0}\nsandbox: {{1}}\n"
	for _, c := range []struct{ name, before, after string }{
		{"one user", "user: '65534:65534'", "user: '65534:65534'"},
		{"another user", "user: '65534:65534'", "user: '65533:65533'"},
		{"root again", "user: '65534:65534'", ""},
		{"a user at last", "", "user: '65534:65534'"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			low := lowAddress(t)
			host, _, _ := net.SplitHostPort(low)
			listeners := ", low: {listen: 'udp://" + low + "', to: 'echo:'}, high: {listen: 'udp://" + host + ":8181', to: 'echo:'}"
			k := asUser(t, text, listeners, c.before)
			flows := []net.Conn{dialUDP(t, low), dialUDP(t, host+":8181")}
			serves := func() {
				t.Helper()
				for _, f := range flows {
					mustPing(t, f)
				}
			}
			serves()
			k.holds(len(flows))
			if c.after != c.before {
				k.write(t, text, listeners, c.after)
				k.replaced(func(int) { k.reload() })
				serves()
			}
			k.write(t, text, "", c.after)
			k.reload()
			serves()
		})
	}
}
