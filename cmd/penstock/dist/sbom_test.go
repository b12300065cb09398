package main

import (
	"bytes"
	"encoding/json"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// spdx is a document as the specification has it: https://spdx.github.io/spdx-spec/v2.3, the sections of which are
// named below. What is not here is not written.
type spdx struct {
	SPDXVersion       string `json:"spdxVersion"`
	DataLicense       string `json:"dataLicense"`
	SPDXID            string
	Name              string `json:"name"`
	DocumentNamespace string `json:"documentNamespace"`
	CreationInfo      struct {
		Created  string   `json:"created"`
		Creators []string `json:"creators"`
	} `json:"creationInfo"`
	Packages []struct {
		SPDXID           string
		Name             string `json:"name"`
		VersionInfo      string `json:"versionInfo"`
		DownloadLocation string `json:"downloadLocation"`
		FilesAnalyzed    *bool  `json:"filesAnalyzed"`
		LicenseConcluded string `json:"licenseConcluded"`
		LicenseDeclared  string `json:"licenseDeclared"`
		CopyrightText    string `json:"copyrightText"`
		Comment          string `json:"comment"`
		ExternalRefs     []struct {
			Category string `json:"referenceCategory"`
			Type     string `json:"referenceType"`
			Locator  string `json:"referenceLocator"`
		} `json:"externalRefs"`
	} `json:"packages"`
	Relationships []struct {
		From string `json:"spdxElementId"`
		Type string `json:"relationshipType"`
		To   string `json:"relatedSpdxElement"`
	} `json:"relationships"`
}

var (
	spdxID    = regexp.MustCompile(`^SPDXRef-[A-Za-z0-9.-]+$`)                                  // 7.2
	spdxTool  = regexp.MustCompile(`^(Tool: \S+-\S+|Organization: .+|Person: .+)$`)             // 6.8
	goPURL    = regexp.MustCompile(`^pkg:golang/[a-z0-9._~/-]+@[A-Za-z0-9._~%-]+$`)             // purl-spec
	licenseRE = regexp.MustCompile(`^(NOASSERTION|[A-Za-z0-9.-]+( (AND|OR) [A-Za-z0-9.-]+)*)$`) // annex D
)

// validSPDX returns what the specification does not allow in a document.
func validSPDX(text []byte) (problems []string) {
	complain := func(what string) { problems = append(problems, what) }
	var d spdx
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&d); err != nil {
		return []string{err.Error()}
	}
	if d.SPDXVersion != "SPDX-2.3" || d.DataLicense != "CC0-1.0" || d.SPDXID != "SPDXRef-DOCUMENT" || d.Name == "" { // 6.1 to 6.4
		complain("the document's head")
	}
	if u, err := url.Parse(d.DocumentNamespace); err != nil || !u.IsAbs() || strings.Contains(d.DocumentNamespace, "#") { // 6.5
		complain("namespace " + d.DocumentNamespace)
	}
	if _, err := time.Parse("2006-01-02T15:04:05Z", d.CreationInfo.Created); err != nil { // 6.9
		complain("created " + d.CreationInfo.Created)
	}
	if len(d.CreationInfo.Creators) == 0 || slices.ContainsFunc(d.CreationInfo.Creators, func(c string) bool { return !spdxTool.MatchString(c) }) {
		complain("creators " + strings.Join(d.CreationInfo.Creators, ", "))
	}
	ids := map[string]bool{d.SPDXID: true}
	for _, p := range d.Packages {
		if !spdxID.MatchString(p.SPDXID) || ids[p.SPDXID] {
			complain("identifier " + p.SPDXID)
		}
		ids[p.SPDXID] = true
		switch {
		case p.Name == "" || p.VersionInfo == "" || p.VersionInfo == "(devel)": // 7.1, 7.3
			complain("a package without a name or version: " + p.SPDXID)
		case p.DownloadLocation != "NOASSERTION" && p.DownloadLocation != "NONE": // 7.7
			complain("download location " + p.DownloadLocation)
		case p.FilesAnalyzed == nil || *p.FilesAnalyzed: // 7.8: otherwise there must be a verification code
			complain("files of " + p.Name)
		case !licenseRE.MatchString(p.LicenseDeclared) || !licenseRE.MatchString(p.LicenseConcluded): // 7.13, 7.15
			complain("licence of " + p.Name)
		case p.CopyrightText == "": // 7.17
			complain("copyright of " + p.Name)
		}
		for _, r := range p.ExternalRefs { // 7.21, annex F.3.5
			if r.Category != "PACKAGE-MANAGER" || r.Type != "purl" || !goPURL.MatchString(r.Locator) {
				complain("reference " + r.Locator)
			}
		}
	}
	described := 0
	for _, r := range d.Relationships { // 11.1
		if !ids[r.From] || !ids[r.To] || r.Type != "DESCRIBES" && r.Type != "DEPENDS_ON" {
			complain("relationship " + r.From + " " + r.Type + " " + r.To)
		}
		if r.Type == "DESCRIBES" && r.From == "SPDXRef-DOCUMENT" {
			described++
		}
	}
	if described != 1 || len(d.Relationships) != len(d.Packages) {
		complain("what is not described, or nobody's")
	}
	return problems
}

// The list of contents is a valid one. It names the program, the toolchain, and every module with its version and
// licence, which is the one that docs/dependencies.md says.
func TestSBOM(t *testing.T) {
	text := mustRead(t, made(t, "penstock-"+version+"-linux-ARCH.spdx.json"))
	for _, problem := range validSPDX(text) {
		t.Error(problem)
	}
	var d spdx
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	versions, licenses := map[string]string{}, map[string]string{}
	for _, p := range d.Packages {
		versions[p.Name], licenses[p.Name] = p.VersionInfo, p.LicenseDeclared
		if p.LicenseDeclared == "NOASSERTION" {
			t.Errorf("%s has no licence", p.Name)
		}
	}
	for name, want := range map[string]string{ourModule: "v" + version, ourModule + "/cmd/penstock": "v" + version, "stdlib": strings.TrimPrefix(runtime.Version(), "go"), "github.com/alecthomas/kong": "v1.17.0"} {
		if versions[name] != want {
			t.Errorf("%s: %q, want %q", name, versions[name], want)
		}
	}
	if len(d.Packages) < 20 {
		t.Errorf("%d packages", len(d.Packages))
	}
	row := regexp.MustCompile("(?m)^\\| `([^`]+)` \\| ([^|]+) \\|")
	_, page, _ := strings.Cut(string(mustRead(t, filepath.Join(root, "docs", "dependencies.md"))), "## cmd/penstock")
	page, _, _ = strings.Cut(page, "\n## ")
	found := 0
	for _, m := range row.FindAllStringSubmatch(page, -1) {
		if have := licenses[m[1]]; have != "" {
			found++
			if have != m[2] {
				t.Errorf("%s: the licence is %s, and docs/dependencies.md says %s", m[1], have, m[2])
			}
		}
	}
	if found < 10 {
		t.Errorf("%d modules of docs/dependencies.md are in the program", found)
	}
}

// What is not valid is seen.
func TestInvalidSPDX(t *testing.T) {
	good, err := json.Marshal(map[string]any{
		"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": "x", "documentNamespace": "https://example.com/x",
		"creationInfo": map[string]any{"created": "2026-11-22T13:00:00Z", "creators": []string{"Tool: x-1"}},
		"packages": []any{map[string]any{
			"SPDXID": "SPDXRef-1", "name": "a", "versionInfo": "v1", "downloadLocation": "NOASSERTION", "filesAnalyzed": false, "licenseConcluded": "NOASSERTION", "licenseDeclared": "MIT AND Apache-2.0",
			"copyrightText": "NOASSERTION", "externalRefs": []any{map[string]string{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": "pkg:golang/example.com/a@v1.0.0%2Bincompatible"}},
		}},
		"relationships": []any{map[string]string{"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES", "relatedSpdxElement": "SPDXRef-1"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if p := validSPDX(good); len(p) > 0 {
		t.Fatal(p)
	}
	for from, to := range map[string]string{
		`"SPDX-2.3"`: `"SPDX-2.2"`, `"https://example.com/x"`: `"example.com/x#a"`, `13:00:00Z`: `13:00:00+01:00`, `"Tool: x-1"`: `"me"`, `"SPDXRef-1","v`: `"SPDXRef_1","v`,
		`"filesAnalyzed":false`: `"filesAnalyzed":true`, `MIT AND`: `MIT and`, `@v1.0.0`: ``, `"DESCRIBES"`: `"CONTAINS"`, `"versionInfo":"v1"`: `"versionInfo":""`, `"name":"a"`: `"name":"a","supplier":"b"`,
		`"relatedSpdxElement":"SPDXRef-1"`: `"relatedSpdxElement":"SPDXRef-2"`,
	} {
		bad := strings.Replace(string(good), from, to, 1)
		if bad != string(good) && len(validSPDX([]byte(bad))) == 0 {
			t.Errorf("%s is taken", to)
		}
	}
}

// Packages have the licences of all code in the program, each once.
func TestLicenses(t *testing.T) {
	made(t, "SHA256SUMS")
	l, err := testRelease().licenses(runtime.GOARCH)
	if err != nil {
		t.Fatal(err)
	}
	text := string(l.text)
	for _, want := range []string{
		"\nstdlib " + strings.TrimPrefix(runtime.Version(), "go") + "\n", "\ngithub.com/alecthomas/kong v1.17.0\n", "Alec Thomas", "Karl Gaissmaier", "Kirill Simonov", // of a NOTICE
		"The Go Authors", "\n                                 Apache License\n", "Additional IP Rights Grant",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing", want)
		}
	}
	for _, never := range []string{"chromedp", "creack/pty", ourModule + " "} { // of tests, or our own
		if strings.Contains(text, never) {
			t.Errorf("%s has nothing to do with the program", never)
		}
	}
	if n := strings.Count(text, "TERMS AND CONDITIONS FOR USE, REPRODUCTION, AND DISTRIBUTION"); n == 0 || n > 6 {
		t.Errorf("the Apache License is there %d times", n)
	}
	if l.declared["stdlib"] != "BSD-3-Clause" || l.declared["go.yaml.in/yaml/v4"] != "Apache-2.0 AND MIT" {
		t.Errorf("%v", l.declared)
	}
	image := untar(t, mustRead(t, made(t, "penstock-"+version+"-linux-ARCH.oci.tar")))
	found := false
	for name, blob := range image {
		if strings.HasPrefix(name, "blobs/") && bytes.HasPrefix(blob, []byte{0x1f, 0x8b}) {
			found = untar(t, gunzip(t, blob))[licensesPath] != nil
		}
	}
	if !found {
		t.Error("the image has none")
	}
	// A module without a text is an error: nobody may pass on its code.
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.work":             "go 1.26.0\n\nuse (\n\t./cmd/penstock\n\t./none\n)\n",
		"cmd/penstock/go.mod": "module example.com/penstock\n\ngo 1.26.0\n", "cmd/penstock/main.go": "package main\n\nimport _ \"example.com/none\"\n\nfunc main() {}\n",
		"none/go.mod": "module example.com/none\n\ngo 1.26.0\n", "none/none.go": "package none\n",
	} {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	r := testRelease()
	r.root = dir
	if _, err := r.licenses(runtime.GOARCH); err == nil || !strings.Contains(err.Error(), "example.com") {
		t.Errorf("a module without a licence: %v", err)
	}
}
