package xds

import (
	"google.golang.org/protobuf/encoding/protowire"
)

// What becomes of a field of Envoy's messages is said by a table of the message. The decoder reads
// nothing that the table does not list as done, and docs/xds.md is made from the same tables.

// A message is the table of one message.
type message struct {
	name   string // of the protobuf message
	doc    string // what it becomes here
	fields []field
}

// A field is one row.
type field struct {
	number  protowire.Number
	name    string
	kind    kind
	outcome outcome
	of      *message // of a message that is done
	doc     string   // what it becomes, or why it is not done
}

// An outcome is what becomes of a field.
type outcome uint8

const (
	done    outcome = iota
	silent          // nothing is lost without it: names of statistics, metadata and the like
	ignored         // there is a warning if it has a value
	refused         // a value refuses the resource
)

func (o outcome) String() string {
	return [...]string{"done", "ignored silently", "ignored with a warning", "refused"}[o]
}

// A kind is how the value of a field is written.
type kind uint8

const (
	textKind     kind = iota // also bytes
	numberKind               // integers, enums, booleans
	wrappedKind              // google.protobuf.UInt32Value, BoolValue and the like
	durationKind             // google.protobuf.Duration
	percentKind              // envoy.type.v3.Percent, RuntimeDouble
	messageKind              // a message with a table
	anyKind                  // google.protobuf.Any
	rawKind                  // a message, as it is
	otherKind                // anything that is not read
)

func (m *message) field(n protowire.Number) *field {
	for i := range m.fields {
		if m.fields[i].number == n {
			return &m.fields[i]
		}
	}
	return nil
}
