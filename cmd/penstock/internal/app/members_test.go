package app

import (
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/config"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// What penstock diff --yaml prints of a member says all that the running one has.
func TestWriteMembers(t *testing.T) {
	m := spec.Member{Name: "m", To: spec.Endpoint{Kind: spec.TCP, Host: "10.0.0.1", Port: 80}, Weight: 5, Backup: true, MaxFlows: 7, Drained: true,
		CheckPort: 81, CheckAddress: netip.MustParseAddr("2001:db8::1"), AgentPort: 82, AgentAddress: netip.MustParseAddr("10.0.0.8"), AgentSend: "hex:\xff\n", QUICServerID: "\xab\x01"}
	for v, i := reflect.ValueOf(m), 0; i < v.NumField(); i++ {
		if v.Field(i).IsZero() {
			t.Errorf("this test does not set %s", v.Type().Field(i).Name)
		}
	}
	var b strings.Builder
	b.WriteString("listeners: {l: {listen: 'tcp://127.0.0.1:1', to: g}}\ngroups:\n")
	writeMembers(&b, "g", []spec.Member{m})
	cfg, err := config.Parse("test", []byte(b.String()))
	if err != nil {
		t.Fatalf("%s%v", b.String(), err)
	}
	if got := cfg.Groups[0].Members[0]; got != m {
		t.Errorf("%s%+v, want %+v", b.String(), got, m)
	}
}

// The text of a configuration that the admin API shows has no key of connection IDs, however it is written.
func TestConfigWithoutKeys(t *testing.T) {
	key := "\x8f\x95\xf0\x92\x45\x76\x5f\x80\x25\x69\x34\xe5\x0c\x66\x20\x7f"
	groups := []*spec.Group{{}, {QUIC: &spec.QUIC{IDs: []spec.QUICLayout{{}, {Key: key}}}}}
	text := "a: 0x8f95f09245765f80256934e50c66207f, b: ${K:-8F95F09245765f80256934E50C66207F}, c: 8f95f092"
	if got := withoutKeys(text, groups); got != "a: 0x[secret], b: ${K:-[secret]}, c: 8f95f092" {
		t.Error(got)
	}
}
