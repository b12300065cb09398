package config

import (
	"strings"
	"time"

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

var otlpKeys = keysOf("otlp",
	required(field("to", webURL, "", "The collector's URL, such as http://127.0.0.1:4318 (OTLP over HTTP, protobuf). /v1/metrics and /v1/logs are added.", func(o *spec.OTLP) *string { return &o.To })),
	field("token-file", filePath, "", "File with the token that is sent with each request, as Authorization: Bearer.", func(o *spec.OTLP) *string { return &o.TokenFile }),
	field("ca", filePath, "", "With https: file with the certificates that the collector's must be signed by. Default: the system's.", func(o *spec.OTLP) *string { return &o.CA }),
	field("instance", text("instance", 256), "", "The attribute service.instance.id, which tells relays apart. Default: the host's name.", func(o *spec.OTLP) *string { return &o.Instance }),
	field("every", duration(time.Second, "0"), "60s", "How often metrics are sent. 0: they are not sent.", func(o *spec.OTLP) *time.Duration { return &o.Every }),
)

// otlp completes the collector of a file.
func (r *reader) otlp(f *file) {
	switch o := &f.OTLP; {
	case f.AccessLog.To == spec.ToOTLP && !r.isSet(&o.To):
		r.fail(r.position(&f.AccessLog.To), fault{problem: "there is no collector", allowed: "otlp with the key to, which says where it is"})
	case f.AccessLog.To == spec.ToOTLP:
		f.AccessLog.OTLP = *o
	case o.To != "" && o.Every == 0:
		r.warn(r.position(&o.Every), fault{problem: "nothing is sent: metrics are not, and access-log goes elsewhere"})
	}
	if o := &f.OTLP; r.isSet(&o.CA) && !strings.HasPrefix(o.To, "https://") {
		r.fail(r.position(&o.CA), fault{problem: "has no effect without TLS", allowed: "ca together with https://"})
	}
}

var logTarget = paths(texts("target", "stdout, stderr, otlp, a path, syslog:HOST:PORT (UDP), syslog:tcp://HOST:PORT or syslog:unix:///PATH", `^(stdout|stderr|otlp|syslog:.+|[^:\x00-\x1f\x7f]*[^:/\x00-\x1f\x7f])$`,
	func(s string) (string, *fault) {
		f := faultf("invalid log target %s", quote(s))
		if s == "stdout" || s == "stderr" || s == spec.ToOTLP {
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
			f.near = suggest(s, []string{"stdout", "stderr", spec.ToOTLP})
		}
		if f.near != "" || s == "" || strings.HasSuffix(s, "/") || strings.ContainsAny(s, ":\x00") && !strings.HasPrefix(s, "/") || strings.ContainsRune(s, 0) {
			return "", f
		}
		return s, nil
	}), func(s string) bool {
	return s != "stdout" && s != "stderr" && s != spec.ToOTLP && !strings.HasPrefix(s, "syslog:")
})
