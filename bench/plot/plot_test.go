package main

import (
	"fmt"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPictures draws all pictures from made-up results, in which one relay is missing, one lost
// datagrams and one had too few descriptors.
func TestPictures(t *testing.T) {
	in, out := t.TempDir(), t.TempDir()
	text := "date: 2026-11-21 10:00:00\ncpu: 2 x Test\nkernel: 6.18\ncpus: 0\nrounds: 2\nenvoy: version: abc/1.40.0/Clean\n"
	loads := []string{"bulk16k", "pingpong1", "pingpong10", "pingpong1000", "idle", "udp1200", "udpsession", "pingpong16kx64"}
	for i, peer := range []string{"penstock", "haproxy", "nginx", "nginx-rcvbuf", "gocopy", "floor"} {
		for j, load := range loads {
			v := float64(3*i + j + 1)
			text += fmt.Sprintf("BenchmarkRelay/load=%s/peer=%s/loops=1\t10\t%g cpu-s/GB\t%g cpu-us/op\t%g KB/conn\t%g p50-us\t%g p99-us\t%g loss-%%\t%d conns\t100 KB-RSS\n",
				load, peer, v, v, v, v, 3*v, float64(20*i), 2000/(i+1))
		}
	}
	for _, p := range pictures {
		for _, part := range p.parts {
			if err := os.WriteFile(filepath.Join(in, part+".txt"), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := drawAll(in, out); err != nil {
		t.Fatal(err)
	}
	md, err := os.ReadFile(filepath.Join(in, "tables.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| bulk, 16 KiB writes | CPU ms per GB | 1,000 ±0% | 4,000 ±0% (20% lost) | 7,000 ±0% (40% lost) | | 13,000 ±0% (80% lost) | 16,000 ±0% (100% lost) | 0.25 (HAProxy) |",
		"| 16 KiB and echo, 64 connections | CPU µs per round trip | 8 ±0% | 11 ±0%",
		"| 4 flows, 1,200 B | CPU µs per datagram | 6 ±0% | 9 ±0% (20% lost) |",
	} {
		if !strings.Contains(string(md), want) {
			t.Errorf("no %q in\n%s", want, md)
		}
	}
	for _, p := range pictures {
		f, err := os.Open(filepath.Join(out, p.name+".png"))
		if err != nil {
			t.Fatal(err)
		}
		img, err := png.Decode(f)
		f.Close()
		if err != nil || img.Bounds().Dx() < 1000 {
			t.Errorf("%s: %v", p.name, err)
		}
	}
}

// TestWithoutResults: without results there are no pictures, and no error.
func TestWithoutResults(t *testing.T) {
	out := t.TempDir()
	if err := drawAll(t.TempDir(), out); err != nil {
		t.Fatal(err)
	}
	if made, _ := os.ReadDir(out); len(made) != 0 {
		t.Errorf("made %v", made)
	}
}

func TestShort(t *testing.T) {
	for v, want := range map[float64]string{0.05234: "0.0523", 1.5: "1.5", 12.34: "12.3", 99.96: "100", 1234.5: "1235"} {
		if got := short(v); got != want {
			t.Errorf("short(%v) = %q, want %q", v, got, want)
		}
	}
}

func TestVersion(t *testing.T) {
	for s, want := range map[string]string{
		"HAProxy version 2.6.12-1+deb12u4 2026/10/17 - https://haproxy.org/ (splice forced)":   "2.6.12",
		"nginx version: nginx/1.22.1 (stream module)":                                          "1.22.1",
		"version: 9e55809/1.40.0/Clean/RELEASE/BoringSSL (tcp_proxy, udp_proxy)":               "1.40.0",
		"HAProxy version 3.5-dev5-50872daa6 2026/08/21 - https://haproxy.org/ (splice forced)": "3.5-dev5",
		"not installed (tcp_proxy, udp_proxy)":                                                 "",
	} {
		if got := version(s); got != want {
			t.Errorf("version(%q) = %q, want %q", s, got, want)
		}
	}
}
