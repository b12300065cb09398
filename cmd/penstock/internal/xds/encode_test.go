package xds

import (
	"math"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// encode encodes a message by its table: texts and bytes, numbers and booleans, durations, messages as maps, lists of
// these, and an Any as a message with a table.
func encode(t testing.TB, m *message, fields map[string]any) (b []byte) {
	t.Helper()
	for i := range m.fields { // in the order of the table
		f := &m.fields[i]
		v, ok := fields[f.name]
		if !ok {
			continue
		}
		list, ok := v.([]any)
		if !ok {
			list = []any{v}
		}
		for _, v := range list {
			b = encodeValue(t, b, f, v)
		}
	}
	for name := range fields {
		known := false
		for i := range m.fields {
			known = known || m.fields[i].name == name
		}
		if !known {
			t.Fatalf("%s has no field %s", m.name, name)
		}
	}
	return b
}

// A packed is the content of an Any.
type packed struct {
	of     *message
	fields map[string]any
}

func encodeValue(t testing.TB, b []byte, f *field, v any) []byte {
	number := func(v any) uint64 {
		switch v := v.(type) {
		case int:
			return uint64(v)
		case int64: // more than an int of 32 bits
			return uint64(v)
		case bool:
			if v {
				return 1
			}
			return 0
		}
		t.Fatalf("%s: %v is not a number", f.name, v)
		return 0
	}
	varint := func(b []byte, n protowire.Number, v uint64) []byte {
		return protowire.AppendVarint(protowire.AppendTag(b, n, protowire.VarintType), v)
	}
	switch v := v.(type) {
	case string:
		return appendText(b, f.number, v)
	case []byte:
		return appendBytes(b, f.number, v)
	case time.Duration:
		return appendBytes(b, f.number, varint(varint(nil, 1, uint64(v/time.Second)), 2, uint64(v%time.Second)))
	case float64: // Percent
		return appendBytes(b, f.number, protowire.AppendFixed64(protowire.AppendTag(nil, 1, protowire.Fixed64Type), math.Float64bits(v)))
	case map[string]any:
		if f.of == nil {
			return appendBytes(b, f.number, nil)
		}
		return appendBytes(b, f.number, encode(t, f.of, v))
	case packed:
		return appendBytes(b, f.number, appendBytes(appendText(nil, 1, "type.googleapis.com/"+v.of.name), 2, encode(t, v.of, v.fields)))
	}
	if f.kind == wrappedKind {
		return appendBytes(b, f.number, varint(nil, 1, number(v)))
	}
	return varint(b, f.number, number(v))
}

func appendText(b []byte, n protowire.Number, s string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, n, protowire.BytesType), s)
}

func appendBytes(b []byte, n protowire.Number, v []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, n, protowire.BytesType), v)
}
