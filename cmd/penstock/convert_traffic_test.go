package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pires/go-proxyproto"

	"github.com/penstock/penstock/internal/testwait"
)

// greetAsMail starts a mail server that greets each client with its own name and the address in the client's PROXY header.
func greetAsMail(t *testing.T, host, name string) string {
	t.Helper()
	l := listenAt(t, host+":0")
	acceptAll(t, l, func(c net.Conn) {
		defer c.Close()
		from := bufio.NewReader(c)
		h, err := proxyproto.Read(from)
		if err != nil {
			return
		}
		client := "nobody" // a check
		if at, ok := h.SourceAddr.(*net.TCPAddr); ok {
			client = at.IP.String()
		}
		fmt.Fprintf(c, "220 %s to %s, version %d\n", name, client, h.Version)
		for lines := bufio.NewScanner(from); lines.Scan(); {
			word, _, _ := strings.Cut(lines.Text(), " ")
			io.WriteString(c, map[string]string{"EHLO": "250-me\r\n250 HELP\r\n", "QUIT": "221 bye\r\n"}[word])
			if word == "QUIT" {
				return
			}
		}
	})
	return l.Addr().String()
}

// Mail servers with an agent and PROXY headers, which checks have, too: the same server greets the same client by the same address, as the agent
// of the first one sends clients away and has them back.
func TestConvertedMailBesideHAProxy(t *testing.T) {
	need(t, "haproxy")
	t.Parallel()
	agent, first, second := startAgent(t), greetAsMail(t, "127.0.0.1", "first"), greetAsMail(t, "127.0.0.2", "second")
	text := haproxyDefaults // the second one's host has no agent: Penstock asks each member's, as the converted file says
	versions := []string{"send-proxy", "send-proxy-v2"}
	for i, send := range versions {
		text += fmt.Sprintf("listen mail%d\n bind {%d}\n option smtpchk EHLO me.example\n default-server check inter 200ms %s\n server first %s agent-check agent-inter 200ms agent-send \"first\\n\" agent-port %s\n server second %s backup\n",
			i, i, send, first, agent.port, second)
	}
	theirs, ours := beside(t, "haproxy.cfg", len(versions), text, startHAProxy)
	for _, step := range []struct{ says, server string }{{"up ready\n", "first"}, {"drain\n", "second"}, {"up ready\n", "first"}, {"down\n", "second"}} {
		agent.line.Store(&step.says)
		for i := range versions {
			for _, from := range []string{"127.0.0.1", "127.0.0.77", "127.3.2.1"} {
				want := fmt.Sprintf("220 %s to %s, version %d", step.server, from, i+1)
				for k, at := range []string{theirs[i], ours[i]} {
					testwait.Until(t, fmt.Sprintf("%s leads %s to %q when the agent says %q", []string{"HAProxy", "Penstock"}[k], from, want, step.says), func() bool {
						return reachedFrom(t, from, at) == want
					})
				}
			}
		}
	}
}

// Server names by a map, limits of clients by a stick table, and servers whose addresses are looked up.
func TestConvertedNamesBesideHAProxy(t *testing.T) {
	need(t, "haproxy")
	t.Parallel()
	one, wild, web := speak(t, "one"), speak(t, "wild"), speak(t, "web")
	_, port, _ := net.SplitHostPort(web.Addr().String())
	names := filepath.Join(t.TempDir(), "names.map")
	if err := os.WriteFile(names, []byte("one.test one\ndeep.wild.test wild\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	const inspect = " tcp-request inspect-delay 20s\n tcp-request content accept if { req.ssl_hello_type 1 }\n tcp-request content accept if { req.len gt 0 }\n"
	theirs, ours := beside(t, "haproxy.cfg", 3, haproxyDefaults+
		"frontend by-map\n bind {0}\n"+inspect+" use_backend %[req.ssl_sni,lower,map("+names+",web)]\n default_backend web\n"+
		"frontend by-end\n bind {1}\n stick-table type ip size 1k expire 1h store conn_rate(1h)\n tcp-request connection track-sc0 src\n tcp-request connection reject if { sc0_conn_rate gt 6 }\n"+
		inspect+" use_backend one if { req.ssl_sni -i one.test }\n use_backend wild if { req.ssl_sni -i -m end .wild.test }\n default_backend web\n"+
		"frontend looked-up\n bind {2}\n default_backend looked-up\n"+
		"resolvers host\n parse-resolv-conf\n"+
		"backend one\n server s "+one.Addr().String()+"\nbackend wild\n server s "+wild.Addr().String()+"\nbackend web\n server s "+web.Addr().String()+"\n"+
		"backend looked-up\n server-template s 2 localhost:"+port+" resolvers host resolve-prefer ipv4 init-addr libc,none\n", startHAProxy)
	for _, v := range []trial{
		{"127.0.0.1", "one.test", "", "one"}, {"127.0.0.1", "ONE.test", "", "one"}, {"127.0.0.1", "deep.wild.test", "", "wild"}, {"127.0.0.1", "wild.test", "", "web"}, {"127.0.0.1", "a.one.test", "h2", "web"},
	} {
		if a, b := visit(t, theirs[0], v), visit(t, ours[0], v); a != v.want || b != v.want {
			t.Errorf("%+v: HAProxy leads to %q, Penstock to %q", v, a, b)
		}
	}
	for _, from := range []string{"127.0.0.1", "127.0.0.2"} { // each has six connections in an hour
		for i, v := range []trial{
			{from, "one.test", "", "one"}, {from, "One.Test", "", "one"}, {from, "a.wild.test", "", "wild"}, {from, "A.b.Wild.test", "", "wild"}, {from, "wild.test", "", "web"}, {from, "", "", "web"}, {from, "one.test", "", ""},
		} {
			if a, b := visit(t, theirs[1], v), visit(t, ours[1], v); a != v.want || b != v.want {
				t.Errorf("connection %d, %+v: HAProxy leads to %q, Penstock to %q", i+1, v, a, b)
			}
		}
	}
	for k, at := range []string{theirs[2], ours[2]} {
		testwait.Until(t, []string{"HAProxy", "Penstock"}[k]+" leads to the server whose address is looked up", func() bool { return reachedFrom(t, "127.0.0.1", at) == "web" })
	}
}

// answerAll starts a UDP server that answers each datagram with so many.
func answerAll(t *testing.T, answers int) string {
	t.Helper()
	c, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		b := make([]byte, 2000)
		for {
			n, from, err := c.ReadFromUDPAddrPort(b)
			if err != nil {
				return
			}
			for i := range answers {
				c.WriteToUDPAddrPort(fmt.Appendf(nil, "%s %d", b[:n], i), from)
			}
		}
	}()
	t.Cleanup(func() {
		c.Close()
		<-done
	})
	return c.LocalAddr().String()
}

// Parts of the clients by their addresses, and sessions of UDP that end with their last answer.
func TestConvertedTrafficBesideNginx(t *testing.T) {
	need(t, "nginx")
	t.Parallel()
	blue, green := speak(t, "blue"), speak(t, "green")
	dir := t.TempDir()
	theirs, ours := beside(t, "nginx.conf", 3, streamModule()+"daemon off;\nmaster_process off;\npid "+dir+"/pid;\nevents {}\nstream {\n"+
		" upstream blue { server "+blue.Addr().String()+"; }\n upstream green { server "+green.Addr().String()+"; }\n"+
		" split_clients $remote_addr $part { 30% blue; * green; }\n"+
		" server { listen {0}; proxy_pass $part; }\n"+
		// Of the same addresses there is a TCP listener, which says when both are there.
		" server { listen {1}; proxy_pass green; }\n server { listen {1} udp; proxy_responses 1; proxy_timeout 1h; proxy_pass "+answerAll(t, 1)+"; }\n"+
		" server { listen {2}; proxy_pass green; }\n server { listen {2} udp; proxy_responses 2; proxy_timeout 1h; proxy_pass "+answerAll(t, 2)+"; }\n}\n",
		func(file string) []string {
			return []string{"nginx", "-p", dir, "-e", filepath.Join(dir, "error"), "-c", file}
		})
	for k, relay := range [][]string{theirs, ours} {
		who := []string{"nginx", "Penstock"}[k]
		inBlue := 0
		const clients = 200
		for i := range clients {
			from := fmt.Sprintf("127.0.5.%d", i+1)
			part := reachedFrom(t, from, relay[0])
			if again := reachedFrom(t, from, relay[0]); part != again {
				t.Errorf("%s leads %s to %q, and then to %q", who, from, part, again)
			}
			if part == "blue" {
				inBlue++
			}
		}
		if inBlue < clients*15/100 || inBlue > clients*45/100 { // it is the same in each run: both compute it from the addresses
			t.Errorf("%s has %d of %d clients in a part of 30%%", who, inBlue, clients)
		}
		for answers := 1; answers <= 2; answers++ {
			c, err := net.Dial("udp", relay[answers])
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			for n := range 5 { // a session each
				var got []string
				c.SetReadDeadline(time.Now().Add(patience))
				fmt.Fprintf(c, "request %d", n)
				for b := make([]byte, 2000); len(got) < answers; {
					size, err := c.Read(b)
					if err != nil {
						t.Fatalf("%s: after %q: %v", who, got, err)
					}
					got = append(got, string(b[:size]))
				}
				if want := fmt.Sprintf("request %d 0, request %[1]d 1", n); !strings.HasPrefix(want, strings.Join(got, ", ")) {
					t.Errorf("%s: %q instead of %q", who, got, want)
				}
			}
		}
	}
}
