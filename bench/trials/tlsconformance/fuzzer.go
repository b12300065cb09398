//go:build linux

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/penstock/penstock/bench/internal/trial"
)

// A script of tlsfuzzer. Its arguments choose ECDHE and an AEAD cipher for TLS 1.2.
type script struct {
	name string
	what string
	args string
	but  []string // conversations that are left out
}

const (
	gcm   = "-C TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"
	ecdhe = "-d " + gcm
)

// scripts are those that crypto/tls passes, apart from the conversations that are left out: there it answers with another alert than the script wants, or
// with none. Scripts about what it does not have (DHE, CCM, renegotiation, PSK without key exchange) are not here, nor those which insist on AES-CBC.
var scripts = []script{
	{"conversation", "TLS 1.2", ecdhe, nil},
	{"ccs", "ChangeCipherSpec where it does not belong", ecdhe, []string{"two bytes long CCS"}},
	{"connection-abort", "the client goes away, at each message", ecdhe, nil},
	{"cve-2016-6309", "large messages", ecdhe, []string{"Large incorrect ClientHello length"}},
	{"early-application-data", "application data before Finished", ecdhe, nil},
	{"hello-request-by-client", "HelloRequest of a client", ecdhe, nil},
	{"interleaved-CKE-with-CCS", "ChangeCipherSpec within a message", gcm, nil},
	{"invalid-compression-methods", "compression", ecdhe, nil},
	{"invalid-content-type", "unknown types of records", ecdhe, nil},
	{"invalid-client-hello-w-record-overflow", "fuzzed ClientHellos", ecdhe + " -n 100", nil},
	{"point-extension", "ec_point_formats", gcm, []string{"Uncompressed code point missing in ec_point_formats"}},
	{"record-layer-fragmentation", "fragments", ecdhe, []string{"maximum size: max fragment - 65385B extension"}},
	{"tls13-conversation", "TLS 1.3", "", nil},
	{"tls13-ccs", "ChangeCipherSpec where it does not belong", "", []string{"CCS message after Finished message"}},
	{"tls13-connection-abort", "the client goes away, at each message", "", []string{"After NewSessionTicket"}},
	{"tls13-hrr", "HelloRetryRequest", "", nil},
	{"tls13-invalid-ciphers", "unknown cipher suites", "-n 200", nil},
	{"tls13-nociphers", "no cipher suites", "", nil},
	{"tls13-pkcs-signature", "signatures of PKCS#1", "", nil},
	{"tls13-record-padding", "padded records", "", nil},
	{"tls13-rsa-signatures", "signatures of RSA", "", nil},
	{"tls13-session-resumption", "tickets", "-d", []string{"session resumption - PSK_ONLY", "sanity - TLS 1.2", "use TLS 1.2 ticket in TLS 1.3"}},
	{"tls13-unencrypted-alert", "an alert in plain text", "", []string{"unencrypted Alert"}},
	{"tls13-zero-length-data", "empty records", "", []string{"zero-len app data with large padding interleaved in handshake", "zero-len app data with padding interleaved in handshake", "zero-length app data interleaved in handshake"}},
}

var counts = regexp.MustCompile(`(?m)^(PASS|FAIL|XFAIL|XPASS|TOTAL|SKIP): *(\d+)$`)

// fuzz runs a script.
func (t *target) fuzz(s script) error {
	if t.tlsfuzzer == "" || t.python == "" {
		return errCannot("no tlsfuzzer: -tlsfuzzer and -python name its checkout and an interpreter that has tlslite-ng")
	}
	args := []string{filepath.Join(t.tlsfuzzer, "scripts", "test-"+s.name+".py"), "-h", "127.0.0.1", "-p", t.port}
	args = append(args, strings.Fields(s.args)...)
	for _, name := range s.but {
		args = append(args, "-e", name)
	}
	cmd := exec.Command(t.python, args...)
	cmd.Env = append(os.Environ(), "PYTHONPATH="+t.tlsfuzzer)
	out, err := t.runCommand(scanPatience, cmd)
	if strings.Contains(out, "No module named") {
		return errCannot("no tlslite-ng in " + t.python)
	}
	found := map[string]string{}
	for _, m := range counts.FindAllStringSubmatch(out, -1) {
		found[m[1]] = m[2]
	}
	if err == nil && found["FAIL"] == "0" && found["XPASS"] == "0" {
		return nil
	}
	if i := strings.Index(out, "FAILED:"); i >= 0 {
		names := strings.Split(strings.TrimSpace(out[i+len("FAILED:"):]), "\n")
		return fmt.Errorf("%s of %s conversations failed, such as\n%s", found["FAIL"], found["TOTAL"], strings.Join(names[:min(len(names), 8)], "\n"))
	}
	return fmt.Errorf("%w\n%s", err, trial.Tail(out, 12))
}
