//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/penstock/penstock/bench/internal/certs"
	"github.com/penstock/penstock/bench/internal/trial"
)

// scanPatience is how long a scanner may take.
const scanPatience = 8 * time.Minute

// sslyze runs all its scans, and compares them with what a server of today should be: TLS 1.2 and 1.3, and no known weakness.
func sslyze(t *target) error {
	if t.python == "" {
		return errCannot("no sslyze: -python names an interpreter that has it")
	}
	file := t.file("sslyze.json")
	defer os.Remove(file)
	out, err := t.run(scanPatience, t.python, "-m", "sslyze", "--mozilla_config=disable", "--sni="+certs.Name, "--json_out="+file,
		"--sslv2", "--sslv3", "--tlsv1", "--tlsv1_1", "--tlsv1_2", "--tlsv1_3", "--heartbleed", "--robot", "--openssl_ccs", "--compression",
		"--reneg", "--resum", "--fallback", "--early_data", "--elliptic_curves", "--ems", "--certinfo", "--certinfo_ca_file="+t.authority.CA, t.addr)
	if strings.Contains(out, "No module named") {
		return errCannot("no sslyze in " + t.python)
	}
	text, fileErr := os.ReadFile(file)
	if fileErr != nil {
		return fmt.Errorf("%w, %v\n%s", fileErr, err, trial.Tail(out, 10))
	}
	var all struct {
		Results []struct {
			Status string                    `json:"scan_status"`
			Scans  map[string]map[string]any `json:"scan_result"`
		} `json:"server_scan_results"`
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber() // the moduli of keys are among them
	if err := d.Decode(&all); err != nil {
		return err
	}
	if len(all.Results) != 1 || all.Results[0].Scans == nil {
		return fmt.Errorf("no results\n%s", trial.Tail(out, 10))
	}
	scans := all.Results[0].Scans
	var bad []string
	at := func(scan string, path ...string) any {
		v := any(scans[scan]["result"])
		for _, key := range path {
			m, ok := v.(map[string]any)
			if !ok {
				return nil
			}
			v = m[key]
		}
		return v
	}
	want := func(value any, scan string, path ...string) {
		if got := at(scan, path...); got != value {
			bad = append(bad, fmt.Sprintf("%s %s: %v, want %v (%v)", scan, strings.Join(path, "."), got, value, scans[scan]["error_trace"]))
		}
	}
	for _, old := range []string{"ssl_2_0_cipher_suites", "ssl_3_0_cipher_suites", "tls_1_0_cipher_suites", "tls_1_1_cipher_suites"} {
		want(false, old, "is_tls_version_supported")
	}
	want(true, "tls_1_2_cipher_suites", "is_tls_version_supported")
	want(true, "tls_1_3_cipher_suites", "is_tls_version_supported")
	for _, v := range []string{"tls_1_2_cipher_suites", "tls_1_3_cipher_suites"} {
		accepted, _ := at(v, "accepted_cipher_suites").([]any)
		for _, a := range accepted {
			suite, _ := a.(map[string]any)["cipher_suite"].(map[string]any)
			name := fmt.Sprint(suite["name"])
			if !strings.Contains(name, "GCM") && !strings.Contains(name, "CHACHA20") || v[4] == '1' && v[6] == '2' && !strings.HasPrefix(name, "TLS_ECDHE_") {
				bad = append(bad, "weak cipher suite "+name)
			}
		}
	}
	want(false, "heartbleed", "is_vulnerable_to_heartbleed")
	want(false, "openssl_ccs_injection", "is_vulnerable_to_ccs_injection")
	want(false, "tls_compression", "supports_compression")
	want(false, "session_renegotiation", "is_vulnerable_to_client_renegotiation_dos")
	want(true, "session_renegotiation", "supports_secure_renegotiation")
	want(false, "tls_1_3_early_data", "supports_early_data")
	want(true, "tls_extended_master_secret", "supports_ems_extension")
	if got := fmt.Sprint(at("robot", "robot_result")); !strings.HasPrefix(got, "NOT_VULNERABLE") {
		bad = append(bad, "robot: "+got)
	}
	if len(bad) > 0 {
		return fmt.Errorf("%s", strings.Join(bad, "\n"))
	}
	return nil
}

// A finding of testssl.sh.
type finding struct {
	ID, Severity, Finding string
}

// expected are findings about this rig, and not about the relay.
var expected = map[string]string{
	"cert_revocation":  "the authority of this program publishes nothing",
	"security_headers": "the upstream's",
	"engine_problem":   "the machine's openssl has no GOST",
}

// testssl runs testssl.sh and returns its findings above LOW.
func testssl(t *target) error {
	name, err := exec.LookPath("testssl.sh")
	if err != nil {
		if name, err = exec.LookPath("testssl"); err != nil {
			return errCannot("no testssl.sh in PATH")
		}
	}
	file := t.file("testssl.json")
	os.Remove(file)
	defer os.Remove(file)
	out, err := t.run(scanPatience, name, "--quiet", "--warnings", "batch", "--color", "0", "--add-ca", t.authority.CA, "--ip", "127.0.0.1", "--sneaky", "--nodns", "none",
		"--jsonfile", file, certs.Name+":"+t.port)
	text, fileErr := os.ReadFile(file)
	if fileErr != nil {
		return fmt.Errorf("%w, %v\n%s", fileErr, err, trial.Tail(out, 10))
	}
	var all []finding
	if err := json.Unmarshal(text, &all); err != nil {
		return fmt.Errorf("%w\n%s", err, trial.Tail(out, 10))
	}
	var bad []string
	for _, f := range all {
		first, _, _ := strings.Cut(f.ID, " ")
		if _, ok := expected[first]; ok || f.Severity == "OK" || f.Severity == "INFO" || f.Severity == "LOW" || f.Severity == "DEBUG" {
			continue
		}
		bad = append(bad, fmt.Sprintf("%s: %s: %s", f.Severity, f.ID, f.Finding))
	}
	if len(all) < 50 {
		bad = append(bad, fmt.Sprintf("only %d findings: it did not get far\n%s", len(all), trial.Tail(out, 10)))
	}
	if len(bad) > 0 {
		return fmt.Errorf("%s", strings.Join(bad, "\n"))
	}
	return nil
}
