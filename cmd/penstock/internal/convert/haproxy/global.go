package haproxy

import (
	"net"
	"strconv"
	"strings"

	"github.com/penstock/penstock/cmd/penstock/internal/convert"
)

// global converts the section global.
func (h *conversion) global(s *section) {
	s.each(h.Plan, h.globalLine)
	h.SetUser(h.becomes)
}

// globalLine converts one line of the section global.
func (h *conversion) globalLine(word string, l *line) {
	limited := func(key string, unit convert.Raw, comment string) {
		n := 0
		if h.number(l, &n); n > 0 {
			h.Top.Sub("limits", key, convert.Number(n, 1e9)+unit, comment)
		}
	}
	switch word {
	case "maxconn":
		limited("flows", "", "Beyond maxconn HAProxy leaves clients in the kernel's queue; Penstock refuses them.")
	case "maxconnrate", "maxsessrate":
		limited("new-flows", "/s", "Beyond "+word+" HAProxy delays clients; Penstock refuses them.")
	case "nbthread":
		n := 0
		if h.number(l, &n); n > 0 {
			h.Top.Sub("engine", "loops", convert.Number(n, 256))
		}
	case "maxpipes":
		n := 0
		h.number(l, &n)
		h.Top.Sub("engine", "pipes", convert.Number(n, 1<<18))
	case "nosplice":
		h.Top.Sub("engine", "pipes", convert.Raw("-1"))
	case "hard-stop-after":
		if d, ok := h.time(l, l.next()); ok && d > 0 {
			h.Top.Set("drain", convert.Duration(d))
		}
	case "spread-checks": // of all checks
		n := 0
		h.number(l, &n)
		h.spread = min(n, 50)
	case "user":
		h.becomes.User = h.userName(l)
	case "group":
		h.becomes.Group, h.becomes.Place = h.userName(l), l.Place
	case "uid", "gid":
		n := -1
		h.becomes.Place = l.Place
		if h.number(l, &n); n >= 0 && n < 1e9 {
			*map[string]*string{"uid": &h.becomes.UID, "gid": &h.becomes.GID}[word] = strconv.Itoa(n)
		}
	case "log":
		h.logTarget(l)
	case "stats":
		h.stats(l)
	case "crt-base":
		h.tls.crt = l.next()
	case "ca-base":
		h.tls.ca = l.next()
	case "ssl-server-verify":
		h.tls.noVerify = l.next() == "none"
	case "ssl-default-bind-options", "ssl-default-server-options":
		h.defaultTLS(word == "ssl-default-bind-options", l)
	case "tune.rcvbuf.client", "tune.sndbuf.client", "tune.rcvbuf.server", "tune.sndbuf.server":
		if b, ok := convert.SizeOf(l.peek()); ok {
			l.next()
			to := &h.rcv
			if strings.Contains(word, "sndbuf") {
				to = &h.snd
			}
			to[map[bool]int{false: 0, true: 1}[strings.HasSuffix(word, "server")]] = b
		}
	case "unix-bind":
		h.readUnixBind(l)
	case "presetenv", "setenv", "unsetenv", "resetenv":
		l.rest() // done where the text is cut into words
	default:
		if nothing("global", word) {
			l.rest()
			return
		}
		if strings.HasPrefix(word, "tune.") {
			l.rest()
			h.Note(l.Place, "%s: no counterpart; the engine sizes its buffers and loops itself", word)
			return
		}
		h.unknown(l, globalHints)
	}
}

var globalHints = map[string]string{
	"chroot":                 "; the sandbox gives up all files that the configuration does not need (docs/sandbox.md)",
	"ulimit-n":               "; LimitNOFILE= of the service manager, or ulimit -n, bounds descriptors, and flows by them",
	"fd-hard-limit":          "; LimitNOFILE= of the service manager, or ulimit -n, bounds descriptors, and flows by them",
	"cpu-map":                "; CPUAffinity= of the service manager bounds the CPUs, and with them the loops",
	"cpu-policy":             "; CPUAffinity= of the service manager bounds the CPUs, and with them the loops",
	"nbproc":                 "; engine.loops is the number of threads of the one process that relays",
	"log-tag":                "; access-log writes to syslog as penstock",
	"log-send-hostname":      "; access-log writes to syslog with the host's name",
	"maxsslconn":             "; limits.flows bounds all flows",
	"maxsslrate":             "; limits.new-flows bounds the rate of all flows",
	"default-path":           "; paths are written out",
	"external-check":         "; use check: {send-expect: ...} or {http: ...}",
	"insecure-fork-wanted":   "; the process that relays starts no programs",
	"insecure-setuid-wanted": "; the process that relays starts no programs",
}

// defaultTLS reads options that bind or server lines have unless they say otherwise.
func (h *conversion) defaultTLS(bind bool, l *line) {
	for l.more() {
		word := l.next()
		is13 := word == "no-tlsv12" || word == "force-tlsv13"
		switch {
		case word == "ssl-min-ver":
			is13 = l.next() == "TLSv1.3"
		case word == "no-tls-tickets":
			h.tls.bind.noTickets = h.tls.bind.noTickets || bind
		case is13 || nothing("tls", word):
		case word == "ssl-max-ver" && l.peek() == "TLSv1.3":
			l.next()
		default:
			h.Note(l.Place, "%s %s: no counterpart", l.words[0], word)
		}
		if is13 && bind {
			h.tls.bind.min13 = true
		} else if is13 {
			h.tls.server13 = true
		}
	}
}

// userName reads the name of a user or group; "": it is none.
func (h *conversion) userName(l *line) string {
	name := l.next()
	if !convert.UserRE().MatchString(name) {
		h.Note(l.Place, "%s %s: not a name", l.words[0], convert.Quote(name))
		return ""
	}
	return name
}

// readUnixBind reads what all Unix sockets have.
func (h *conversion) readUnixBind(l *line) {
	for l.more() {
		switch word, value := l.next(), l.next(); {
		case word == "prefix":
			h.unixBind.prefix = value
		case word == "mode" && modeRE().MatchString(value):
			h.unixBind.mode = convert.Raw(`"` + value + `"`)
		default:
			h.Note(l.Place, "unix-bind %s: no counterpart%s", word, bindHints[word])
		}
	}
}

// stats converts the control socket.
func (h *conversion) stats(l *line) {
	word := l.next()
	switch {
	case word != "socket":
		l.rest()
		if !nothing("stats", word) {
			h.Note(l.Place, "stats %s: no counterpart", word)
		}
		return
	case h.Top.Get("admin") != nil:
		l.rest()
		h.Note(l.Place, "a second stats socket: the first one's admin listener takes its place, too; admin.listen takes further addresses")
		return
	}
	h.Top.Sub("admin", "listen", "unix:///run/penstock/admin.sock")
	options := l.rest()
	for i, w := range options {
		if w == "mode" && i+1 < len(options) && modeRE().MatchString(options[i+1]) {
			h.Top.Sub("admin", "mode", convert.Raw(`"`+options[i+1]+`"`))
		}
	}
	h.Note(l.Place, "stats socket: the admin listener takes its place; commands and API are Penstock's (docs/commands.md)")
}

// logTarget makes the access log go where the first log line says.
func (h *conversion) logTarget(l *line) {
	written := l.next()
	if h.logAt == l.Place {
		l.rest() // a line of defaults, for another section
		return
	}
	facility := ""
	for l.more() {
		switch word := l.next(); word {
		case "len", "sample", "profile":
			h.Note(l.Place, "log ... %s %s: no counterpart", word, l.next())
		case "format":
			l.next()
		case "emerg", "alert", "crit", "err", "warning", "notice":
			h.Note(l.Place, "log %s ... %s: this is for messages of HAProxy itself; Penstock's own log goes to stderr", written, word)
			return
		case "info", "debug":
		default:
			facility = word
		}
	}
	if h.logTo != "" {
		h.Note(l.Place, "log %s: there is one access log, and the first target gets it", written)
		return
	}
	to, why := logURL(written)
	if why != "" {
		h.Note(l.Place, "log %s: %s", written, why)
		return
	}
	h.logTo, h.logAt = to, l.Place
	if facility != "" && facility != "daemon" && strings.HasPrefix(to, "syslog:") {
		h.logComment = "Lines go to syslog as daemon.info; HAProxy's had the facility " + facility + "."
	}
}

// logURL returns a target of log as access-log has it, or why it has no counterpart.
func logURL(to string) (url, why string) {
	switch {
	case to == "stdout" || to == "stderr":
		return to, ""
	case strings.HasPrefix(to, "/"):
		url = "syslog:unix://" + to
	case strings.HasPrefix(to, "unix@/"):
		url = "syslog:unix://" + strings.TrimPrefix(to, "unix@")
	case strings.HasPrefix(to, "ring@") || strings.HasPrefix(to, "fd@") || strings.HasPrefix(to, "backend@"):
		return "", "no counterpart"
	default:
		to = strings.TrimPrefix(strings.TrimPrefix(strings.TrimPrefix(to, "udp@"), "ipv4@"), "ipv6@")
		scheme := "syslog:"
		if rest, ok := strings.CutPrefix(to, "tcp@"); ok {
			to, scheme = rest, "syslog:tcp://"
		}
		host, port, err := net.SplitHostPort(to)
		if err != nil {
			host, port = strings.Trim(to, "[]"), "514"
		}
		url = scheme + net.JoinHostPort(host, port)
	}
	if !convert.LogTargetOK(url) {
		return "", "not a place for lines"
	}
	return url, ""
}
