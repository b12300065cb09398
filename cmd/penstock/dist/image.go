package main

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path"
)

// user is who the container runs as: the number that images without a shell use.
const user = 65532

// descriptor names a blob (OCI image specification 1.1, descriptor.md).
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Platform    map[string]string `json:"platform,omitempty"`
}

// image writes a container image as an OCI layout in a tar archive, with the
// manifest.json that docker load reads.
func (r *release) image(to, arch string, files []entry) error {
	var layer []entry
	for _, f := range files {
		switch f.path {
		case "usr/bin/penstock", "etc/penstock/penstock.yaml", "usr/share/doc/penstock/copyright", "usr/share/doc/penstock/sbom.spdx.json", licensesPath:
			layer = append(layer, f)
		}
	}
	layer = append(layer,
		entry{path: "etc/group", mode: 0o644, text: fmt.Appendf(nil, "root:x:0:\npenstock:x:%d:\n", user)},
		entry{path: "etc/passwd", mode: 0o644, text: fmt.Appendf(nil, "root:x:0:0:root:/:/sbin/nologin\npenstock:x:%d:%d:penstock:/:/sbin/nologin\n", user, user)},
		entry{path: "run/penstock", mode: 0o750, folder: true, owner: user},
		entry{path: "var/log/penstock", mode: 0o750, folder: true, owner: user})
	plain, err := r.tarOf("", layer)
	if err != nil {
		return err
	}
	var blobs []entry
	blob := func(mediaType string, text []byte) descriptor {
		sum := fmt.Sprintf("%x", sha256.Sum256(text))
		blobs = append(blobs, entry{path: "blobs/sha256/" + sum, mode: 0o644, text: text})
		return descriptor{MediaType: mediaType, Digest: "sha256:" + sum, Size: len(text)}
	}
	object := func(v any) []byte {
		text, e := json.Marshal(v)
		if e != nil {
			err = e
		}
		return text
	}
	stamp := r.time.Format("2006-01-02T15:04:05Z")
	labels := map[string]string{
		"org.opencontainers.image.title": "penstock", "org.opencontainers.image.version": r.version, "org.opencontainers.image.created": stamp,
		"org.opencontainers.image.source": "https://github.com/penstock/penstock", "org.opencontainers.image.licenses": license(r.root),
		"org.opencontainers.image.description": "A layer-4 relay for TCP, UDP and Unix sockets",
	}
	packed := blob("application/vnd.oci.image.layer.v1.tar+gzip", compress(plain))
	config := blob("application/vnd.oci.image.config.v1+json", object(map[string]any{
		"created": stamp, "architecture": arch, "os": "linux",
		"config": map[string]any{
			"User": fmt.Sprintf("%d:%d", user, user), "Entrypoint": []string{"/usr/bin/penstock"}, "Cmd": []string{"run", "-c", "/etc/penstock/penstock.yaml"},
			"WorkingDir": "/", "StopSignal": "SIGTERM", "Labels": labels,
		},
		"rootfs":  map[string]any{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(plain))}},
		"history": []any{map[string]any{"created": stamp, "created_by": "penstock dist"}},
	}))
	const manifestType = "application/vnd.oci.image.manifest.v1+json"
	manifest := blob(manifestType, object(map[string]any{
		"schemaVersion": 2, "mediaType": manifestType, "config": config, "layers": []descriptor{packed}, "annotations": labels,
	}))
	manifest.Annotations = map[string]string{"org.opencontainers.image.ref.name": r.version, "io.containerd.image.name": "docker.io/penstock/penstock:" + r.version}
	manifest.Platform = map[string]string{"os": "linux", "architecture": arch}
	index := object(map[string]any{"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": []descriptor{manifest}})
	docker := object([]any{map[string]any{
		"Config": "blobs/sha256/" + path.Base(blobs[1].path), "Layers": []string{blobs[0].path}, "RepoTags": []string{"penstock/penstock:" + r.version},
	}})
	if err != nil {
		return err
	}
	all := append(blobs,
		entry{path: "index.json", mode: 0o644, text: index},
		entry{path: "manifest.json", mode: 0o644, text: docker},
		entry{path: "oci-layout", mode: 0o644, text: []byte(`{"imageLayoutVersion":"1.0.0"}`)})
	text, err := r.tarOf("", all)
	if err != nil {
		return err
	}
	return os.WriteFile(to, text, 0o644)
}
