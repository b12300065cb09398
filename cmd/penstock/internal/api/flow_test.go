package api

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/penstock/penstock/relay"
)

// A flow without an upstream has no upstream in JSON, and a client without a name has an address
// that reads back.
func TestFlowAddresses(t *testing.T) {
	for _, flow := range []any{&Flow{Client: Addr{Network: relay.Unix}}, &EndedFlow{Client: Addr{Network: relay.Unix}}, &FlowDetail{Flow: Flow{Client: Addr{Network: relay.Unix}}}} {
		text, err := json.Marshal(flow)
		if err != nil || strings.Contains(string(text), `"upstream":`) || !strings.Contains(string(text), `"client":"unix:"`) {
			t.Errorf("%T: %s, %v", flow, text, err)
		}
		var back Flow
		if err := json.Unmarshal(text, &back); err != nil || back.Client != (Addr{Network: relay.Unix}) || back.Upstream != (Addr{}) {
			t.Errorf("%T: %+v, %v", flow, back, err)
		}
	}
}
