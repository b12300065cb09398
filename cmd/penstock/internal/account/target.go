package account

import (
	"cmp"
	"fmt"
	"os"
	"strings"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

const allowedTarget = "stdout, stderr, otlp, /PATH, syslog:HOST:PORT (UDP), syslog:tcp://HOST:PORT, syslog:unix:///PATH"

// DefaultMode is the mode of a new access log if the configuration sets none.
const DefaultMode = 0o640

// CheckTarget returns an error if to is not a valid target of an access log. It does
// not open anything.
func CheckTarget(to string) error {
	switch {
	case to == "stdout", to == "stderr", to == spec.ToOTLP, strings.HasPrefix(to, "/") && !strings.ContainsRune(to, 0):
		return nil
	}
	_, err := syslogServer(to)
	return err
}

// syslogServer parses a target that begins with "syslog:".
func syslogServer(to string) (spec.Endpoint, error) {
	rest, ok := strings.CutPrefix(to, "syslog:")
	if !ok {
		return spec.Endpoint{}, fmt.Errorf("invalid target %q; allowed: %s", to, allowedTarget)
	}
	if !strings.Contains(rest, "://") && !strings.HasPrefix(rest, "unix") {
		rest = "udp://" + rest
	}
	e, err := spec.ParseUpstream(rest)
	if err != nil || e.Kind.BuiltIn() || e.Ports() > 1 {
		return spec.Endpoint{}, fmt.Errorf("invalid syslog server %q; allowed: %s", to, allowedTarget)
	}
	return e, nil
}

// newSink opens the target of cfg.
func newSink(cfg spec.AccessLog, format formatter, how Opening) (sink, error) {
	switch {
	case cfg.To == "stdout":
		return &file{f: os.Stdout, format: format}, nil
	case cfg.To == "stderr":
		return &file{f: os.Stderr, format: format}, nil
	case cfg.To == spec.ToOTLP:
		return newCollector(cfg, format, how.Version), nil
	case strings.HasPrefix(cfg.To, "/"):
		return newFile(cfg.To, cmp.Or(cfg.Mode, DefaultMode), format, how)
	}
	server, err := syslogServer(cfg.To)
	if err != nil {
		return nil, err
	}
	return newSyslog(server, format), nil
}
