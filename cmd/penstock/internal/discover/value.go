package discover

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/cmd/penstock/internal/upstream"
)

// The bounds of what a registry says of a member.
const (
	maxValue    = 4 << 10
	maxName     = 255
	maxZone     = 255
	maxPriority = 1<<16 - 1
)

// parseMember parses the value of a member: its address, such as 10.0.0.7:80 or tcp://10.0.0.7:80, or a JSON object:
//
//	{"to": "tcp://10.0.0.7:80", "weight": 3, "zone": "a", "priority": 0, "backup": false, "draining": false, "check-port": 8080, "check-address": "10.0.1.7", "quic-server-id": "0a0b", "metadata": {"version": "2"}}
//
// Only "to" is required. Other keys are ignored, so that members can say more than this version knows. The address needs no
// lookup, and is of the network that the group has. A problem is a phrase, empty if there is none.
func parseMember(name string, value []byte, network spec.Kind) (t upstream.Target, problem string) {
	if problem := checkName(name); problem != "" {
		return t, problem
	}
	if len(value) > maxValue {
		return t, fmt.Sprintf("the value has more than %d bytes", maxValue)
	}
	if !utf8.Valid(value) {
		return t, "the value is not UTF-8"
	}
	value = bytes.TrimSpace(value)
	m := memberValue{Weight: 1}
	if len(value) > 0 && value[0] == '{' {
		if err := json.Unmarshal(value, &m); err != nil {
			return t, fmt.Sprintf("the value is not the JSON of a member: %s", jsonProblem(err))
		}
		if m.To == "" {
			return t, `"to" is missing`
		}
	} else {
		m.To = string(value)
	}
	switch {
	case m.Weight < 1 || m.Weight > 256:
		return t, fmt.Sprintf("weight %d is not from 1 to 256", m.Weight)
	case m.Priority < 0 || m.Priority > maxPriority:
		return t, fmt.Sprintf("priority %d is not from 0 to %d", m.Priority, maxPriority)
	case len(m.Zone) > maxZone || strings.ContainsFunc(m.Zone, unprintable):
		return t, "the zone has control characters, or ones that are not UTF-8, or is too long"
	}
	if t.Metadata, problem = canonicalObject(m.Metadata); problem != "" {
		return t, problem
	}
	addr, problem := parseAddress(m.To, network)
	if problem != "" {
		return t, problem
	}
	t.Name, t.Addr = name, addr
	t.Weight, t.Backup, t.Zone, t.Priority, t.Draining = m.Weight, m.Backup, m.Zone, m.Priority, m.Draining
	return t, readServer(&t, m.server)
}

// server returns what the value says of the server behind the member, as a label.
func (m *memberValue) server(name string) (string, bool) {
	switch {
	case name == "check-port" && m.CheckPort != nil:
		return m.CheckPort.String(), true
	case name == "check-address" && m.CheckAddress != nil:
		return *m.CheckAddress, true
	case name == "quic-server-id" && m.QUICServerID != nil:
		return *m.QUICServerID, true
	}
	return "", false
}

type memberValue struct {
	To       string          `json:"to"`
	Weight   int             `json:"weight"`
	Zone     string          `json:"zone"`
	Priority int             `json:"priority"`
	Backup   bool            `json:"backup"`
	Draining bool            `json:"draining"`
	Metadata json.RawMessage `json:"metadata"`

	CheckPort    *json.Number `json:"check-port"`
	CheckAddress *string      `json:"check-address"`
	QUICServerID *string      `json:"quic-server-id"`
}

// jsonProblem returns what is wrong with JSON, without the names of Go types.
func jsonProblem(err error) string {
	if e, ok := err.(*json.UnmarshalTypeError); ok {
		return fmt.Sprintf("%s is a %s", e.Field, e.Value)
	}
	return err.Error()
}

// checkName returns what is wrong with the name of a member from a registry.
func checkName(name string) string {
	switch {
	case name == "":
		return "there is no name after the prefix"
	case len(name) > maxName:
		return fmt.Sprintf("the name is longer than %d bytes", maxName)
	case !utf8.ValidString(name) || strings.ContainsFunc(name, unprintable):
		return "the name has characters that cannot be printed"
	}
	return ""
}

// unprintable reports whether a character is not for names: also not the one that stands for what is not UTF-8.
func unprintable(r rune) bool { return !unicode.IsPrint(r) || r == utf8.RuneError }

// canonicalObject returns a JSON object with sorted keys and without spaces; nothing and {} are empty.
func canonicalObject(b json.RawMessage) (text, problem string) {
	if len(b) == 0 || string(b) == "null" {
		return "", ""
	}
	var object map[string]any
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	if err := d.Decode(&object); err != nil {
		return "", "metadata is not a JSON object"
	}
	if len(object) == 0 {
		return "", ""
	}
	out, err := json.Marshal(object)
	if err != nil {
		return "", "metadata is not a JSON object"
	}
	if len(out) > upstream.MaxMetadata {
		return "", fmt.Sprintf("metadata has more than %d bytes", upstream.MaxMetadata)
	}
	return string(out), ""
}
