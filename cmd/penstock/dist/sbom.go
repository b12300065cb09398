package main

import (
	"cmp"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
)

const ourModule = "github.com/penstock/penstock"

// sbom lists what is in a binary, as the toolchain wrote it there, in SPDX 2.3. declared are the licences of modules.
func (r *release) sbom(arch, binary string, declared map[string]string) ([]byte, error) {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	type ref struct {
		Category string `json:"referenceCategory"`
		Type     string `json:"referenceType"`
		Locator  string `json:"referenceLocator"`
	}
	type pkg struct {
		ID        string `json:"SPDXID"`
		Name      string `json:"name"`
		Version   string `json:"versionInfo"`
		Location  string `json:"downloadLocation"`
		Analyzed  bool   `json:"filesAnalyzed"`
		Concluded string `json:"licenseConcluded"`
		Declared  string `json:"licenseDeclared"`
		Copyright string `json:"copyrightText"`
		Comment   string `json:"comment,omitempty"`
		Refs      []ref  `json:"externalRefs"`
	}
	type relation struct {
		From string `json:"spdxElementId"`
		Type string `json:"relationshipType"`
		To   string `json:"relatedSpdxElement"`
	}
	var packages []pkg
	var relations []relation
	add := func(name, version, license, comment string) string {
		id := fmt.Sprintf("SPDXRef-Package-%d", len(packages))
		packages = append(packages, pkg{
			ID: id, Name: name, Version: version, Location: "NOASSERTION", Concluded: "NOASSERTION", Declared: license, Copyright: "NOASSERTION", Comment: comment,
			Refs: []ref{{"PACKAGE-MANAGER", "purl", purl(name, version)}},
		})
		return id
	}
	own := license(r.root)
	main := add(info.Main.Path, "v"+r.version, own, "")
	relations = append(relations, relation{"SPDXRef-DOCUMENT", "DESCRIBES", main})
	relations = append(relations, relation{main, "DEPENDS_ON", add("stdlib", strings.TrimPrefix(info.GoVersion, "go"), cmp.Or(declared["stdlib"], "NOASSERTION"), "")})
	for _, d := range info.Deps {
		if d.Replace != nil && d.Path != ourModule {
			d = d.Replace
		}
		version, license, comment := d.Version, cmp.Or(declared[d.Path], "NOASSERTION"), ""
		if d.Path == ourModule {
			version, license = "v"+r.version, own
		}
		if d.Sum != "" {
			comment = "go.sum " + d.Sum
		}
		relations = append(relations, relation{main, "DEPENDS_ON", add(d.Path, version, license, comment)})
	}
	// The namespace must be another one for each other document, and the same for the same.
	content, err := json.Marshal([]any{packages, relations, r.time.Unix()})
	if err != nil {
		return nil, err
	}
	namespace := fmt.Sprintf("https://github.com/penstock/penstock/releases/v%s/penstock-linux-%s.spdx.json/%x", r.version, arch, sha256.Sum256(content))
	return json.MarshalIndent(map[string]any{
		"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": "penstock-" + r.version + "-linux-" + arch, "documentNamespace": namespace,
		"creationInfo": map[string]any{"created": r.time.Format("2006-01-02T15:04:05Z"), "creators": []string{"Tool: penstock-dist-" + r.version}},
		"packages":     packages, "relationships": relations,
	}, "", " ")
}

// purl names a Go module in all ecosystems: https://github.com/package-url/purl-spec, purl-types, golang. Its names are
// lower-case, and what is not plain is percent-encoded.
func purl(name, version string) string {
	return "pkg:golang/" + strings.ToLower(name) + "@" + strings.ReplaceAll(url.PathEscape(version), "+", "%2B")
}
