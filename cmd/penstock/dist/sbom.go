package main

import (
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"strings"
)

const ourModule = "github.com/penstock/penstock"

// sbom lists what is in a binary, as the toolchain wrote it there, in SPDX 2.3.
func (r *release) sbom(arch, binary string) ([]byte, error) {
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
			Refs: []ref{{"PACKAGE-MANAGER", "purl", "pkg:golang/" + name + "@" + version}},
		})
		return id
	}
	main := add(info.Main.Path, "v"+r.version, license(r.root), "")
	relations = append(relations, relation{"SPDXRef-DOCUMENT", "DESCRIBES", main})
	relations = append(relations, relation{main, "DEPENDS_ON", add("stdlib", strings.TrimPrefix(info.GoVersion, "go"), "BSD-3-Clause", "")})
	for _, d := range info.Deps {
		if d.Replace != nil && d.Path != ourModule {
			d = d.Replace
		}
		version, declared, comment := d.Version, "NOASSERTION", ""
		if d.Path == ourModule {
			version, declared = "v"+r.version, license(r.root)
		}
		if d.Sum != "" {
			comment = "go.sum " + d.Sum
		}
		relations = append(relations, relation{main, "DEPENDS_ON", add(d.Path, version, declared, comment)})
	}
	return json.MarshalIndent(map[string]any{
		"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": "penstock-" + r.version + "-linux-" + arch,
		"documentNamespace": "https://github.com/penstock/penstock/releases/v" + r.version + "/penstock-linux-" + arch + ".spdx.json",
		"creationInfo":      map[string]any{"created": r.time.Format("2006-01-02T15:04:05Z"), "creators": []string{"Tool: penstock dist"}},
		"packages":          packages, "relationships": relations,
	}, "", " ")
}
