package upstream

import (
	"encoding/json"
	"testing"
)

// What a registry has said is the same when it is read again: also IDs that are not UTF-8.
func TestServerIDSaved(t *testing.T) {
	for _, id := range []ServerID{"", "\x00\xff\xfe", "server01"} {
		text, err := json.Marshal(Target{QUICServerID: id})
		if err != nil {
			t.Fatal(err)
		}
		var again Target
		if err := json.Unmarshal(text, &again); err != nil || again.QUICServerID != id {
			t.Errorf("%s: %q, %v; want %q", text, again.QUICServerID, err, id)
		}
	}
}
