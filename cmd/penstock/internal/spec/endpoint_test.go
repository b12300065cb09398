package spec

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"github.com/penstock/penstock/relay"
)

var update = flag.Bool("update", false, "write the golden files")

func TestParse(t *testing.T) {
	for s, want := range map[string]Endpoint{
		"tcp://127.0.0.1:7000":     {Kind: TCP, Host: "127.0.0.1", Port: 7000},
		"tcp://:7000":              {Kind: TCP, Port: 7000},
		"tcp://[::1]:7000":         {Kind: TCP, Host: "::1", Port: 7000},
		"tcp://[fe80::1%eth0]:80":  {Kind: TCP, Host: "fe80::1%eth0", Port: 80},
		"tcp://db_1.internal:5432": {Kind: TCP, Host: "db_1.internal", Port: 5432},
		"tcp://localhost:1":        {Kind: TCP, Host: "localhost", Port: 1},
		"unix:///run/a b?.sock":    {Kind: Unix, Path: "/run/a b?.sock"},
		"unix:@penstock":           {Kind: Unix, Path: "@penstock"},
		"udp://[::1]:53":           {Kind: UDP, Host: "::1", Port: 53},
		"udp://:53":                {Kind: UDP, Port: 53},
		"unixgram:///run/log.sock": {Kind: Unixgram, Path: "/run/log.sock"},
		"unixgram:@penstock":       {Kind: Unixgram, Path: "@penstock"},
		"tcp://:30000-30999":       {Kind: TCP, Port: 30000, LastPort: 30999},
		"udp://[::1]:1-16384":      {Kind: UDP, Host: "::1", Port: 1, LastPort: 16384},
		"echo:":                    {Kind: relay.Echo},
		"discard:":                 {Kind: relay.Discard},
	} {
		got, err := ParseUpstream(s)
		if err != nil {
			got, err = ParseListener(s)
		}
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v, want %+v", s, got, err, want)
		}
		if got.String() != s {
			t.Errorf("%s comes back as %s", s, got)
		}
	}
	if e, err := ParseListener("tcp://:0"); err != nil || e.Port != 0 {
		t.Errorf("a listener on any port: %v, %v", e, err)
	}
}

// Messages are part of the interface: testdata/errors.golden has each one.
func TestErrors(t *testing.T) {
	inputs, err := os.ReadFile(filepath.Join("testdata", "errors.in"))
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	for in := bufio.NewScanner(bytes.NewReader(inputs)); in.Scan(); {
		role, s, _ := strings.Cut(in.Text(), " ")
		parse := ParseUpstream
		if role == "listen" {
			parse = ParseListener
		}
		e, err := parse(strings.ReplaceAll(s, "LONG", strings.Repeat("x", 108)))
		if err == nil {
			t.Errorf("%s %s is accepted as %+v", role, s, e)
			continue
		}
		fmt.Fprintf(&got, "%s %v\n", role, err)
	}
	golden := filepath.Join("testdata", "errors.golden")
	if *update {
		if err := os.WriteFile(golden, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("got:\n%s\nwant:\n%s", got.Bytes(), want)
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"tcp://127.0.0.1:7000", "tcp://[::1]:1", "tcp://:0", "udp://h:53", "unix:///a/b", "unix:@x", "echo:", "discard:",
		"tcp://[fe80::1%e]:1", "tcp://a\nb:1", "unix://\x00", "", ":", "tcp:", "tcp://1.2.3:4", "tcp://[::ffff:1.2.3.4]:1", "tcp://:30000-30999", "udp://h:65535-65535",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, parse := range []func(string) (Endpoint, error){ParseListener, ParseUpstream} {
			e, err := parse(s)
			if err != nil {
				text := err.Error()
				if strings.ContainsFunc(text, unicode.IsControl) || !strings.Contains(text, "; allowed: tcp://") {
					t.Errorf("message %q", text)
				}
				if e != (Endpoint{}) {
					t.Errorf("%q gives both %+v and an error", s, e)
				}
				continue
			}
			again, err := parse(e.String())
			if err != nil || again != e {
				t.Errorf("%q -> %+v -> %q -> %+v, %v", s, e, e, again, err)
			}
		}
	})
}
