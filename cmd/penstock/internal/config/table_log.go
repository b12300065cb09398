package config

import (
	"strings"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

var logKeys = keysOf("log",
	field("level", oneOf("debug", "info", "warn", "error"), "info", "The lowest level that is written.", func(l *spec.Log) *string { return &l.Level }),
	field("format", oneOf("auto", "text", "json"), "auto", "auto: text on a terminal, JSON otherwise.", func(l *spec.Log) *string { return &l.Format }),
	field("flows", oneOf("none", "failed", "all"), "failed", "Which flows are logged when they end.", func(l *spec.Log) *string { return &l.Flows }),
)

var accessLogKeys = keysOf("access-log",
	required(field("to", logTarget, "", "Where lines are written. A file is reopened on SIGUSR1.", func(a *spec.AccessLog) *string { return &a.To })),
	field("format", text("format", 4096), "json", "json, or a template of the fields in docs/observing.md.", func(a *spec.AccessLog) *string { return &a.Format }),
	field("mode", mode, `"0640"`, "Permissions of a newly created file.", func(a *spec.AccessLog) *uint32 { return &a.Mode }),
)

var logTarget = paths(texts("target", "stdout, stderr, a path, syslog:HOST:PORT (UDP), syslog:tcp://HOST:PORT or syslog:unix:///PATH", `^(stdout|stderr|syslog:.+|[^:\x00-\x1f\x7f]*[^:/\x00-\x1f\x7f])$`,
	func(s string) (string, *fault) {
		f := faultf("invalid log target %s", quote(s))
		if s == "stdout" || s == "stderr" {
			return s, nil
		}
		if to, ok := strings.CutPrefix(s, "syslog:"); ok {
			if !strings.HasPrefix(to, "unix:") && !strings.HasPrefix(to, "tcp://") {
				to = "udp://" + to
			}
			if _, err := spec.ParseUpstream(to); err != nil {
				return "", f
			}
			return s, nil
		}
		if !strings.HasPrefix(s, "/") {
			f.near = suggest(s, []string{"stdout", "stderr"})
		}
		if f.near != "" || s == "" || strings.HasSuffix(s, "/") || strings.ContainsAny(s, ":\x00") && !strings.HasPrefix(s, "/") || strings.ContainsRune(s, 0) {
			return "", f
		}
		return s, nil
	}), func(s string) bool { return s != "stdout" && s != "stderr" && !strings.HasPrefix(s, "syslog:") })
