package convert

import (
	"net"
	"strings"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// global converts the section global.
func (h *haproxyPlan) global(s *section) {
	for _, l := range s.lines {
		word, arg := l.words[0], ""
		if len(l.words) > 1 {
			arg = l.words[1]
		}
		n, isNumber := count(arg)
		switch word {
		case "maxconn":
			if isNumber && n > 0 {
				h.top.sub("limits", "flows", number(n, many), "Beyond maxconn HAProxy leaves clients in the kernel's queue; Penstock refuses them.")
			}
		case "nbthread":
			if isNumber {
				h.top.sub("engine", "loops", number(n, 256))
			}
		case "maxpipes":
			if isNumber {
				h.top.sub("engine", "pipes", number(n, 1<<18))
			}
		case "nosplice":
			h.top.sub("engine", "pipes", raw("-1"))
		case "maxconnrate", "maxsessrate":
			if isNumber && n > 0 {
				h.top.sub("limits", "new-flows", number(n, 1e9)+"/s", "Beyond "+word+" HAProxy delays clients; Penstock refuses them.")
			}
		case "hard-stop-after":
			if d, ok := h.time(l, arg); ok && d > 0 {
				h.top.set("drain", duration(d))
			}
		case "spread-checks": // of all checks
			if isNumber {
				h.spread = min(n, 50)
			}
		case "log":
			h.logTarget(l)
		case "stats":
			h.stats(l)
		case "crt-base":
			h.tls.crt = arg
		case "ca-base":
			h.tls.ca = arg
		case "ssl-server-verify":
			h.tls.noVerify = arg == "none"
		case "ssl-default-bind-options", "ssl-default-server-options":
			for i, option := range l.words[1:] {
				is13 := option == "no-tlsv12" || option == "force-tlsv13" || option == "ssl-min-ver" && i+2 < len(l.words) && l.words[i+2] == "TLSv1.3"
				switch {
				case is13 && word == "ssl-default-bind-options":
					h.tls.bind.min13 = true
				case is13:
					h.tls.server13 = true
				case option == "no-tls-tickets" && word == "ssl-default-bind-options":
					h.tls.bind.noTickets = true
				}
			}
		case "tune.rcvbuf.client", "tune.sndbuf.client", "tune.rcvbuf.server", "tune.sndbuf.server":
			if b, ok := sizeOf(arg); ok {
				to := &h.rcv
				if strings.Contains(word, "sndbuf") {
					to = &h.snd
				}
				to[map[bool]int{false: 0, true: 1}[strings.HasSuffix(word, "server")]] = b
			}
		case "daemon", "user", "group", "uid", "gid", "pidfile", "nbproc", "cpu-map", "cpu-policy", "master-worker", "ulimit-n", "chroot", "set-dumpable", "node", "description",
			"quiet", "zero-warning", "expose-experimental-directives", "localpeer", "log-tag", "log-send-hostname", "setcap", "unix-bind", "thread-groups", "numa-cpu-mapping",
			"presetenv", "setenv", "unsetenv", "resetenv", "server-state-base", "server-state-file", "external-check", "insecure-fork-wanted", "insecure-setuid-wanted", "strict-limits", "busy-polling", "mworker-max-reloads", "h1-case-adjust", "h1-case-adjust-file", "key-base", "maxsslconn", "maxsslrate", "maxcomprate", "maxcompcpuusage", "maxzlibmem", "spread-checks-max":
			// The service manager's business, or TLS's or HTTP's.
		default:
			switch {
			case strings.HasPrefix(word, "ssl-"), strings.HasPrefix(word, "tune."), strings.HasPrefix(word, "issuers-"), strings.HasPrefix(word, "no"), strings.HasPrefix(word, "profiling"):
				if strings.HasPrefix(word, "tune.") && !strings.HasPrefix(word, "tune.ssl.") && !strings.HasPrefix(word, "tune.h") {
					h.note(l.at, "%s: no counterpart; the engine sizes its buffers and loops itself", word)
				}
			default:
				h.note(l.at, "%s: no counterpart", word)
			}
		}
	}
}

// stats converts the control socket.
func (h *haproxyPlan) stats(l line) {
	if len(l.words) < 3 || l.words[1] != "socket" {
		return
	}
	if h.top.get("admin") != nil {
		h.note(l.at, "a second stats socket: no counterpart; there is one admin listener")
		return
	}
	h.top.sub("admin", "listen", "unix:///run/penstock/admin.sock")
	for i, w := range l.words[3:] {
		if w == "mode" && i+4 < len(l.words) {
			if m := l.words[i+4]; modeRE.MatchString(m) {
				h.top.sub("admin", "mode", raw(`"`+m+`"`))
			}
		}
	}
	h.note(l.at, "stats socket: the admin listener takes its place; commands and API are Penstock's (docs/operations.md)")
}

// logTarget makes the access log go where the first log line says.
func (h *haproxyPlan) logTarget(l line) {
	if len(l.words) < 2 || h.logTo != "" {
		return
	}
	to := l.words[1]
	switch {
	case to == "stdout" || to == "stderr":
		h.logTo = to
		return
	case strings.HasPrefix(to, "/"):
		to = "syslog:unix://" + to
	case strings.HasPrefix(to, "ring@") || strings.HasPrefix(to, "fd@"):
		h.note(l.at, "log %s: no counterpart", to)
		return
	default:
		to = strings.TrimPrefix(strings.TrimPrefix(to, "udp@"), "ipv4@")
		scheme := "syslog:"
		if rest, ok := strings.CutPrefix(to, "tcp@"); ok {
			to, scheme = rest, "syslog:tcp://"
		}
		host, port, err := net.SplitHostPort(to)
		if err != nil {
			host, port = strings.Trim(to, "[]"), "514"
		}
		to = scheme + net.JoinHostPort(host, port)
	}
	if !logTargetOK(to) {
		h.note(l.at, "log %s: not a place for lines", l.words[1])
		return
	}
	h.logTo = to
}

// logTargetOK reports whether access-log's key to takes it.
func logTargetOK(to string) bool {
	url, ok := strings.CutPrefix(to, "syslog:")
	if !ok {
		return to == "stdout" || to == "stderr" || strings.HasPrefix(to, "/") && !strings.HasSuffix(to, "/") && oneLine(to) == to
	}
	if !strings.HasPrefix(url, "unix:") && !strings.HasPrefix(url, "tcp://") {
		url = "udp://" + url
	}
	_, err := spec.ParseUpstream(url)
	return err == nil && oneLine(to) == to
}
