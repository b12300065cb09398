package xds

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/xds.md")

// tables are all of them, in the order of the documentation.
var tables = []*message{
	&listenerTable, &additionalAddressTable, &listenerFilterTable, &tlsInspectorTable, &httpInspectorTable, &proxyFilterTable, &udpProxyTable, &udpHashTable, &matcherTable, &onMatchTable, &actionTable, &udpRouteTable,
	&filterChainTable, &filterChainMatchTable, &filterTable, &sniForwardTable, &tcpProxyTable, &weightedTable, &clusterWeightTable, &hashPolicyTable,
	&clusterTable, &customClusterTable, &dynamicClusterTable, &dnsCacheTable, &edsClusterTable, &configSourceTable, &policiesTable, &policyTable, &roundRobinPolicyTable, &leastRequestPolicyTable, &randomPolicyTable, &maglevPolicyTable, &ringHashPolicyTable,
	&localityPolicyTable, &policySlowStartTable, &leastRequestTable, &roundRobinTable, &slowStartTable, &commonTable, &breakersTable, &thresholdsTable, &hostThresholdsTable, &outlierTable,
	&bindTable, &connectionTable, &healthCheckTable, &tcpCheckTable, &httpCheckTable, &payloadTable, &int64RangeTable, &upstreamProxyTable, &proxyConfigTable, &passTLVsTable, &tlvTable,
	&assignmentTable, &assignmentPolicyTable, &localityEndpointsTable, &endpointTable, &endpointAddressTable, &endpointCheckTable, &metadataTable,
	&addressTable, &socketAddressTable, &pipeTable, &rangeTable, &localityTable, &keepaliveTable, &transportSocketTable, &rawBufferTable, &extensionTable,
}

// The tables have every field of the messages of Envoy 1.40, with number, name and kind, and no others. testdata/fields.txt
// is what "go run ./fleetservers fields" prints, in module fleettest, of the messages whose names the failing test shows.
func TestTables(t *testing.T) {
	b, err := os.ReadFile(filepath.Join("testdata", "fields.txt"))
	if err != nil {
		t.Fatal(err)
	}
	known := map[string][]string{} // message: its lines
	for _, line := range strings.Split(strings.TrimSpace(string(b)), "\n") {
		words := strings.SplitN(line, " ", 4)
		known[words[0]] = append(known[words[0]], strings.Join(words[1:], " "))
	}
	for _, m := range tables {
		lines, ok := known[m.name]
		if !ok {
			t.Errorf("%s is not in testdata/fields.txt", m.name)
			continue
		}
		var seen []string
		for _, f := range m.fields {
			i := slices.IndexFunc(lines, func(line string) bool { return strings.HasPrefix(line, fmt.Sprintf("%d %s ", f.number, f.name)) })
			if i < 0 {
				t.Errorf("%s: there is no field %d %s", m.name, f.number, f.name)
				continue
			}
			kind := strings.SplitN(lines[i], " ", 3)[2]
			if !fits(&f, kind) {
				t.Errorf("%s: %s is a %s", m.name, f.name, kind)
			}
			if f.kind == messageKind && f.outcome == done && f.of.name != strings.TrimPrefix(kind, "repeated ") {
				t.Errorf("%s: %s is a %s, not a %s", m.name, f.name, kind, f.of.name)
			}
			if o := (&object{of: m}); f.kind == messageKind && o.listed(&f) != strings.HasPrefix(kind, "repeated ") {
				t.Errorf("%s: %s: listed is wrong", m.name, f.name)
			}
			if f.doc == "" && f.outcome != done {
				t.Errorf("%s: %s has no reason", m.name, f.name)
			}
			seen = append(seen, lines[i])
		}
		for _, line := range lines {
			if line != "" && !slices.Contains(seen, line) {
				t.Errorf("%s: %s is missing", m.name, line)
			}
		}
	}
}

// fits reports whether a field can have a value of a kind.
func fits(f *field, kind string) bool {
	single := strings.TrimPrefix(kind, "repeated ")
	number := slices.Contains([]string{"uint32", "int32", "int64", "uint64", "bool", "enum"}, single)
	switch f.kind {
	case otherKind:
		return true
	case textKind:
		return single == "string" || single == "bytes"
	case numberKind:
		return number
	case wrappedKind:
		return slices.Contains([]string{"google.protobuf.UInt32Value", "google.protobuf.UInt64Value", "google.protobuf.BoolValue"}, kind)
	case durationKind:
		return kind == "google.protobuf.Duration"
	case percentKind:
		return kind == "envoy.type.v3.Percent"
	case messageKind:
		return strings.Contains(single, ".")
	case anyKind:
		return kind == "google.protobuf.Any"
	}
	return kind == "map" || strings.Contains(kind, ".")
}

// docs/xds.md has the tables.
func TestDocs(t *testing.T) {
	const begin, end = "<!-- The tables of cmd/penstock/internal/xds follow. -->\n", "<!-- End of the tables. -->\n"
	path := filepath.Join("..", "..", "..", "..", "docs", "xds.md")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(b), begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the tables", path)
	}
	want := before + begin + tablesText() + end + after
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if want != string(b) {
		t.Errorf("%s is out of date: go test ./internal/xds -run TestDocs -update", path)
	}
}

func tablesText() string {
	var b strings.Builder
	for _, m := range tables {
		fmt.Fprintf(&b, "\n### %s\n", m.name)
		if m.doc != "" {
			fmt.Fprintf(&b, "\n%s%s.\n", strings.ToUpper(m.doc[:1]), m.doc[1:])
		}
		if len(m.fields) == 0 {
			continue
		}
		b.WriteString("\n| field | | |\n|---|---|---|\n")
		for _, f := range m.fields {
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", f.name, f.outcome, strings.ReplaceAll(f.doc, "|", "\\|"))
		}
	}
	b.WriteString("\n")
	return b.String()
}
