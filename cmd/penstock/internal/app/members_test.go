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
