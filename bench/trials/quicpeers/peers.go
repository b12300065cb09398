//go:build linux

package main

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// implementations returns what can be tried, and why the rest cannot.
func (s *setup) implementations() []implementation {
	self, _ := os.Executable()
	script, curl, python, quinn := filepath.Join(s.Dir, "aioquic_peer.py"), filepath.Join(s.Dir, "curl_peer.py"), program(s.python), program(s.quinn)
	os.WriteFile(script, aioquicPeer, 0o644)
	os.WriteFile(curl, curlPeer, 0o644)
	all := []implementation{
		{name: "quic-go", ids: "cloud",
			server: func(s *setup, port, root, id string) []string {
				return with([]string{self, "peer", "server", "127.0.0.1:" + port, s.pair.Certificate, s.pair.Key, root}, id)
			},
			client: func(s *setup, port, name, path, out, bytes string) []string {
				return with([]string{self, "peer", "client", "127.0.0.1:" + port, s.ca, name, path, out}, bytes)
			}},
		{name: "ngtcp2", missing: found("unshare", "gtlsclient", "/usr/sbin/gtlsserver"),
			server: func(s *setup, port, root, _ string) []string {
				return []string{"/usr/sbin/gtlsserver", "-q", "-d", root, "127.0.0.1", port, s.pair.Key, s.pair.Certificate}
			},
			client: func(s *setup, port, name, path, out, bytes string) []string {
				// It sends a server name only if that is what it connects to, so this one must lead here.
				hosts := filepath.Join(s.Dir, "hosts")
				os.WriteFile(hosts, []byte("127.0.0.1 "+strings.Join(names, " ")+"\n"), 0o644)
				argv := []string{"unshare", "--mount", "sh", "-ec", `mount --bind "$0" /etc/hosts; exec "$@"`, hosts,
					"gtlsclient", "-q", "--exit-on-all-streams-close", "--download=" + filepath.Dir(out)}
				if bytes != "" {
					argv = append(argv, "--change-local-addr=300ms") // it does not go by bytes; the download is slow until it is over
				}
				return append(argv, name, port, "https://"+name+path)
			}},
		{name: "aioquic", missing: module(python, "aioquic"), ids: "cloud",
			server: func(s *setup, port, root, id string) []string {
				return with([]string{python, script, "server", "127.0.0.1", port, s.pair.Certificate, s.pair.Key, root}, id)
			},
			client: func(s *setup, port, name, path, out, bytes string) []string {
				return with([]string{python, script, "client", "127.0.0.1", port, s.ca, name, path, out}, bytes)
			}},
		{name: "quinn", missing: found(quinn), ids: "cloud",
			server: func(s *setup, port, root, id string) []string {
				return with([]string{quinn, "server", "127.0.0.1:" + port, s.pair.Certificate, s.pair.Key, root}, id)
			},
			client: func(s *setup, port, name, path, out, bytes string) []string {
				return with([]string{quinn, "client", "127.0.0.1:" + port, s.ca, name, path, out}, bytes)
			}},
		{name: "curl", missing: module(python, "curl_cffi"), stays: true,
			client: func(s *setup, port, name, path, out, _ string) []string {
				return []string{python, curl, "127.0.0.1", port, s.ca, name, path, out}
			}},
		{name: "chromium", missing: found("chromium"), stays: true,
			client: func(s *setup, port, name, _, out, _ string) []string {
				return []string{self, "peer", "chromium", port, s.pair.Certificate, name, out}
			}},
	}
	return append(all, s.envoys()...)
}

// program returns the path of a program, which peers that run in folders of their own find, too. It keeps symbolic links: a Python knows by its
// path which packages it has.
func program(name string) string {
	path, err := exec.LookPath(name)
	if err != nil {
		return name // it is missing: see found
	}
	if path, err = filepath.Abs(path); err != nil {
		return name
	}
	return path
}

// with adds an argument unless it is empty.
func with(argv []string, last string) []string {
	if last == "" {
		return argv
	}
	return append(argv, last)
}

// found returns why a program cannot be run; "": all can.
func found(programs ...string) string {
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			return err.Error()
		}
	}
	return ""
}

// module returns why a module of Python cannot be used; "": it can.
func module(python, name string) string {
	if out, err := exec.Command(python, "-c", "import "+name).CombinedOutput(); err != nil {
		return fmt.Sprintf("%v: %s", err, out)
	}
	return ""
}

//go:embed aioquic_peer.py
var aioquicPeer []byte

//go:embed curl_peer.py
var curlPeer []byte
