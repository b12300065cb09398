package config

import (
	"strings"
	"testing"
)

// What other products take is told as it is written here.
func TestNearValues(t *testing.T) {
	for text, want := range map[string]string{
		`listeners: {l: {listen: "tcp://*:80", to: "echo:"}}`:                                      "did you mean tcp://:80?",
		`listeners: {l: {listen: "*:80", to: "echo:"}}`:                                            "did you mean tcp://:80?",
		`listeners: {l: {listen: 80, to: "echo:"}}`:                                                `"80" is a port alone (did you mean tcp://:80?)`,
		`listeners: {l: {listen: "0.0.0.0:80", to: "echo:"}}`:                                      "did you mean tcp://0.0.0.0:80?",
		`listeners: {l: {listen: "/run/s", to: "echo:"}}`:                                          "did you mean unix:///run/s?",
		`listeners: {l: {listen: "tcp://:80", to: g}}` + "\ngroups: {g: {members: [10.0.0.1:80]}}": "did you mean tcp://10.0.0.1:80?",
		`listeners: {l: {listen: "tcp://:80", to: "echo:", timeouts: {idle: 1d}}}`:                 "did you mean 24h?",
		`listeners: {l: {listen: "tcp://:80", to: "echo:", timeouts: {idle: 30 seconds}}}`:         "did you mean 30s?",
		`listeners: {l: {listen: "tcp://:80", to: "echo:", timeouts: {idle: 30 s}}}`:               "did you mean 30s?",
		`listeners: {l: {listen: "tcp://:80", to: "echo:", timeouts: {idle: 5min}}}`:               "did you mean 5m?",
		`listeners: {l: {listen: "tcp://:80", to: "echo:", limits: {bandwidth: 10Mbit}}}`:          "did you mean 1220KiB/s?",
		`listeners: {l: {listen: "tcp://:80", to: "echo:", limits: {bandwidth: 10MB/s}}}`:          "did you mean 10MiB/s?",
		`listeners: {l: {listen: "tcp://:80", to: "echo:", routes: [{sni: "*", to: "echo:"}]}}`:    "every name is no condition; allowed: a name, or *.example.org; to of the listener",
		`log: {level: warning}`: "did you mean warn?",
		`listeners: {l: {listen: "tcp://:80", to: "echo:", tls: {cert: /a}}}`:                  "did you mean certificates?",
		`listeners: {l: {listen: "tcp://:80", to: "echo:", tls: {certificates: [{crt: /a}]}}}`: "did you mean certificate?",
		`groups: {g: {members: ["tcp://a:1"], check: {tcp: {interval: 1s}}}}`:                  "did you mean every?",
		`groups: {g: {members: [{address: "tcp://a:1"}]}}`:                                     "did you mean to?",
	} {
		if _, err := Parse("f", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}
