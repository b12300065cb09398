package otlp

import (
	"testing"

	logs "go.opentelemetry.io/proto/slim/otlp/logs/v1"
	"google.golang.org/protobuf/proto"
)

// What can be read of the records that a process has left can be sent, and left again, with all of them.
func FuzzRecords(f *testing.F) {
	text, err := EncodeRecords([]*logs.LogRecord{{Body: Text("", "a\xff").Value, EventName: "penstock.flow"}, {TimeUnixNano: 7}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte{})
	f.Add([]byte{0x12, 0x00, 0x12, 0x00})
	f.Fuzz(func(t *testing.T, text []byte) {
		list, err := DecodeRecords(text)
		if err != nil {
			return
		}
		if _, err := proto.Marshal(Source{}.Logs(list)); err != nil {
			t.Fatal(err)
		}
		again, err := EncodeRecords(list)
		if err != nil {
			t.Fatal(err)
		}
		if same, err := DecodeRecords(again); err != nil || len(same) != len(list) {
			t.Fatalf("%d records of %d: %v", len(same), len(list), err)
		}
	})
}
