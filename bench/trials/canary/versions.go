//go:build linux

package main

import (
	"fmt"
	"regexp"
	"strings"
)

// A version is a text to be published.
type version struct {
	name    string
	text    string
	crashes bool // canaries are killed while they run it
}

// base returns the first version: what all others are changes of. Each line that a change replaces is one line.
func base(m *members) string {
	return strings.NewReplacer(
		"@one", m.urls["one"], "@two", m.urls["two"], "@tls-a", m.urls["tls-a"], "@tls-b", m.urls["tls-b"], "@udp", m.urls["udp"],
		"@cert", m.pair.Certificate, "@key", m.pair.Key,
	).Replace(`# change 0
drain: 5s
log: {level: warn, flows: none}
listeners:
  web: {listen: "tcp://127.0.0.1:${WEB}", to: web}
  sni: {listen: "tcp://127.0.0.1:${SNI}", routes: [{sni: a.test, to: a}, {sni: b.test, to: b}]}
  tls: {listen: "tcp://127.0.0.1:${TLS}", to: web, tls: {certificates: [{certificate: "@cert", key: "@key"}]}}
  dns: {listen: "udp://127.0.0.1:${DNS}", to: dns-g, timeouts: {idle: 5s}}
groups:
  web: {members: ["@one", "@two"]}
  a: {members: ["@tls-a"]}
  b: {members: ["@tls-b"]}
  dns-g: {members: ["@udp"]}
`)
}

// lines returns the lines of the listener web, where most clients come, and of the group with the same name.
func lines(text string) (listener, group string) {
	all := regexp.MustCompile(`(?m)^  web: .*$`).FindAllString(text, -1)
	return all[0], all[1]
}

// kinds is how many kinds of harmless versions there are.
const kinds = 14

// harmless returns the i-th version that changes nothing for clients.
func (f *fleet) harmless(i int) *version {
	text := regexp.MustCompile(`# change \d+`).ReplaceAllString(f.text, fmt.Sprint("# change ", i+1))
	listener, group := lines(text)
	name := "a comment"
	change := func(what, from, to string) {
		name = what
		text = strings.Replace(text, from, to, 1)
	}
	add := func(to, keys string) string { return strings.TrimSuffix(to, "}") + ", " + keys + "}" }
	switch i % kinds {
	case 1:
		change("an idle time-out that nobody meets", listener, add(cut(listener, "timeouts"), fmt.Sprintf("timeouts: {idle: %dm}", 5+i)))
	case 2:
		change("another balancer", group, add(cut(group, "balance"), "balance: "+[]string{"p2c", "least-connections", "random"}[i/10%3]))
	case 3:
		change("a limit that nobody meets", listener, add(cut(listener, "limits"), fmt.Sprintf("limits: {flows: %d}", 5000+i)))
	case 4:
		change("a network that nobody comes from", listener, add(cut(listener, "deny"), fmt.Sprintf("deny: [192.0.2.%d]", i)))
	case 5:
		change("members in another order", group, swap(group))
	case 6:
		name = "another time to drain"
		text = regexp.MustCompile(`drain: \d+s`).ReplaceAllString(text, fmt.Sprintf("drain: %ds", 5+i))
	case 7:
		change("a group that nobody uses", "groups:\n", fmt.Sprintf("groups:\n  spare-%d: {members: [\"tcp://127.0.0.1:9\"]}\n", i))
	case 8:
		change("a queue", group, add(cut(group, "queue"), fmt.Sprintf("queue: {size: %d}", 100+i)))
	case 9:
		text = renamed(text, i)
		name = "another name of a listener"
	case 10:
		text = renamed(text, i)
		text = regexp.MustCompile(`(?m)(to: |^  )dns-g\d*\b`).ReplaceAllString(text, fmt.Sprintf("${1}dns-g%d", i))
		name = "another name of a listener and of its group"
	case 11:
		text = renamed(text, i)
		if all := "udp://:"; strings.Contains(text, all) {
			text = strings.Replace(text, all, "udp://127.0.0.1:", 1)
		} else {
			text = strings.Replace(text, "udp://127.0.0.1:$", all+"$", 1)
		}
		name = "another name of a listener, and all addresses or one"
	case 12:
		text = regexp.MustCompile(`(?m)^  (sni|tls): \{listen`).ReplaceAllStringFunc(text, func(s string) string {
			return "  " + map[string]string{"sni": "tls", "tls": "sni"}[s[2:5]] + ": {listen"
		})
		name = "names of two listeners exchanged"
	case 13:
		text = renamed(text, i)
		text = strings.Replace(text, "groups:\n", fmt.Sprintf("  other-%d: {listen: \"unix:@penstock-canary-%d-${WEB}\", to: web}\ngroups:\n", i, i), 1)
		name = "another name of a listener, and a new one"
	}
	return &version{name: name, text: text}
}

// renamed returns a text with another name of the listener for datagrams.
func renamed(text string, i int) string {
	return regexp.MustCompile(`(?m)^  dns(-\d+)?: \{listen`).ReplaceAllString(text, fmt.Sprintf("  dns-%d: {listen", i))
}

// cut removes a key of a line, so that it can be added anew.
func cut(line, key string) string {
	return regexp.MustCompile(`, `+key+`: (\{[^}]*\}|\[[^\]]*\]|[^,{}]*)`).ReplaceAllString(line, "")
}

// swap exchanges the first two members of a group.
func swap(line string) string {
	return regexp.MustCompile(`members: \[("[^"]*"), ("[^"]*")`).ReplaceAllString(line, "members: [$2, $1")
}

// An outage is a version that must not be promoted.
type outage struct {
	name    string
	crashes bool
	change  func(text string, m *members) string
}

// withMembers returns a change that gives the group web other members, and other keys.
func withMembers(keys string, names ...string) func(string, *members) string {
	return func(text string, m *members) string {
		_, group := lines(text)
		var urls []string
		for _, n := range names {
			urls = append(urls, fmt.Sprintf("%q", m.urls[n]))
		}
		return strings.Replace(text, group, "  web: {members: ["+strings.Join(urls, ", ")+"]"+keys+"}", 1)
	}
}

// withKeys returns a change that gives the listener web other keys.
func withKeys(keys string) func(string, *members) string {
	return func(text string, _ *members) string {
		listener, _ := lines(text)
		return strings.Replace(text, listener, `  web: {listen: "tcp://127.0.0.1:${WEB}", to: web`+keys+"}", 1)
	}
}

// combined returns both changes.
func combined(a, b func(string, *members) string) func(string, *members) string {
	return func(text string, m *members) string { return b(a(text, m), m) }
}

// replaced returns a change of any text.
func replaced(pattern, by string) func(string, *members) string {
	return func(text string, _ *members) string {
		return regexp.MustCompile(pattern).ReplaceAllString(text, by)
	}
}

// outages are the five versions that an earlier judge promoted, and others.
var outages = []outage{
	{"listener at another address", false, replaced(`127\.0\.0\.1:\$\{WEB\}`, "127.0.0.2:$${WEB}")},
	{"member closes at once", false, withMembers("", "closes")},
	{"member is silent", false, withMembers("", "silent")},
	{"idle time-out of 10 ms", false, withKeys(", timeouts: {idle: 10ms}")},
	{"member resets at once", false, withMembers("", "resets")},

	{"no route for half of the names", false, replaced(`, \{sni: b\.test, to: b\}`, "")},
	{"names at each other's members", false, replaced(`sni: a\.test, to: a\}, \{sni: b\.test, to: b\}`, "sni: a.test, to: b}, {sni: b.test, to: a}")},
	{"certificate of another name", false, func(text string, m *members) string {
		return strings.NewReplacer(m.pair.Certificate, m.wrong.Certificate, m.pair.Key, m.wrong.Key).Replace(text)
	}},
	{"PROXY header missing", false, withMembers("", "proxied")},
	{"PROXY header not awaited", false, withMembers(", proxy-protocol: v1", "one", "two")},
	{"PROXY header wanted of clients", false, withKeys(", proxy-protocol: {from: [127.0.0.0/8]}")},
	{"bandwidth of 1 KiB/s", false, withKeys(", limits: {bandwidth: 1KiB/s}")},
	{"first-byte time-out of 10 ms", false, combined(withKeys(", timeouts: {first-byte: 10ms}"), withMembers("", "late"))},
	{"life of 100 ms", false, withKeys(", timeouts: {life: 100ms}")},
	{"max-flows of 1 and a queue", false, func(text string, m *members) string {
		_, group := lines(text)
		return strings.Replace(text, group, fmt.Sprintf("  web: {members: [{to: %q, max-flows: 1}], queue: {size: 50, timeout: 100ms}}", m.urls["one"]), 1)
	}},
	{"limit of 2 flows", false, withKeys(", limits: {flows: 2}")},
	{"most clients denied", false, withKeys(", allow: [192.0.2.0/24]")},
	{"UDP member is silent", false, func(text string, m *members) string {
		return strings.Replace(text, m.urls["udp"], m.urls["udp-silent"], 1)
	}},
	{"member of another protocol", false, withMembers("", "error")},
	{"member resets in mid-stream", false, withMembers("", "breaks")},
	{"half of the members dead", false, withMembers(", retries: 0", "one", "dead")},
	{"half of the members dead, tried again", false, withMembers("", "one", "dead")},
	{"all members dead", false, withMembers("", "dead")},
	{"member far away", false, withMembers("", "far")},
	{"TLS to members that have none", false, withMembers(", tls: {verify: false}", "one", "two")},
	{"listener removed", false, replaced(`(?m)^  dns(-\d+)?: \{listen.*\n`, "")},
	{"listener removed, another one renamed", false, combined(replaced(`(?m)^  dns(-\d+)?: \{listen.*\n`, ""), replaced(`(?m)^  sni: \{listen`, "  names: {listen"))},
	{"canaries are killed again and again", true, replaced(`# change`, "# crashing change")},
}

// outage returns a version with an outage.
func (f *fleet) outage(o *outage, m *members) *version {
	return &version{o.name, o.change(f.text, m), o.crashes}
}
