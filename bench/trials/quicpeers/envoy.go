//go:build linux

package main

import (
	"bytes"
	_ "embed"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"text/template"

	"github.com/penstock/penstock/bench/internal/certs"
	"github.com/penstock/penstock/bench/internal/peer"
)

// lbKey is the key of connection IDs that are encrypted.
const lbKey = "8f95f09245765f80256934e50c66207f"

// An lbLayout is a configuration of draft-ietf-quic-load-balancers for server IDs of 8 bytes.
type lbLayout struct {
	config    byte
	nonce     int
	encrypted bool
}

// ids returns the layout as the relay's `ids` of a group.
func (l lbLayout) ids() string {
	key := ""
	if l.encrypted {
		key = ", key: " + lbKey
	}
	return fmt.Sprintf("[{config: %d, server-id: 8, nonce: %d%s}]", l.config, l.nonce, key)
}

// envoys returns Envoy as a server, once with each kind of layout.
func (s *setup) envoys() (all []implementation) {
	binary := peer.FindEnvoy()
	for _, kind := range []struct {
		name   string
		layout lbLayout
	}{
		{"envoy", lbLayout{1, 8, true}},        // server ID and nonce are one block of AES
		{"envoy-rounds", lbLayout{3, 6, true}}, // they are not: four rounds encrypt them
		{"envoy-plain", lbLayout{2, 6, false}},
	} {
		all = append(all, implementation{name: kind.name, missing: found(binary), ids: kind.layout.ids(),
			server: func(s *setup, port, root, id string) []string {
				file := filepath.Join(s.Dir, "envoy-"+port+".yaml")
				os.WriteFile(file, envoyConfig(s.pair, port, root, id, kind.layout), 0o644)
				return []string{binary, "--config-path", file, "--concurrency", "2", "--disable-hot-restart", "--log-level", "warning"}
			}})
	}
	return all
}

//go:embed envoy.yaml
var envoyYAML string

var envoyTemplate = template.Must(template.New("").Parse(envoyYAML))

// envoyConfig returns the configuration of a server with the file of a folder, and with an ID of 8 bytes in hexadecimal, unless that is empty.
func envoyConfig(pair certs.Pair, port, root, id string, l lbLayout) []byte {
	encode := func(b []byte) string { return base64.StdEncoding.EncodeToString(b) }
	server, _ := hex.DecodeString(id)
	key, _ := hex.DecodeString(lbKey)
	var b bytes.Buffer
	envoyTemplate.Execute(&b, map[string]any{"Port": port, "Root": root, "Pair": pair, "Size": size,
		"Server": encode(server), "Key": encode(key), "Config": encode([]byte{l.config}), "Nonce": l.nonce, "Encrypted": l.encrypted})
	return b.Bytes()
}
