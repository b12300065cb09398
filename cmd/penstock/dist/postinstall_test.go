package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// After an upgrade of the package, a daemon with a keeper is upgraded in place. Whatever happens, the
// package itself does not fail.
func TestPostinstall(t *testing.T) {
	need(t, "unshare")
	if os.Getuid() != 0 {
		t.Skip("only root can mount a folder over /run")
	}
	const (
		keeper  = "case $1 in status) echo '{\"keeper\": {\"worker_pid\": 12}}' ;; upgrade) echo upgrading ;; esac"
		broken  = "case $1 in status) echo '{\"keeper\": {\"worker_pid\": 12}}' ;; *) echo no such thing >&2; exit 1 ;; esac"
		alone   = "case $1 in status) echo '{}' ;; *) echo begun >&2; exit 1 ;; esac"
		silent  = "exit 1"
		active  = "exit 0"
		stopped = "case $1 in is-active) exit 3 ;; esac"
	)
	for _, c := range []struct {
		name, penstock, systemctl, env, want, never string
	}{
		{"a keeper", keeper, active, "", "upgrading\npenstock.service runs this version", "previous"},
		{"an upgrade that fails", broken, active, "", "could not be upgraded in place", "runs this version"},
		{"not wanted", keeper, active, "PENSTOCK_UPGRADE=no", "still runs the previous version. To change to this one: penstock upgrade", "upgrading"},
		{"no keeper", alone, active, "", "systemctl restart penstock", "begun"},
		{"a daemon that does not answer", silent, active, "", "penstock upgrade --admin URL", "runs this version"},
		{"no daemon", keeper, stopped, "", "", "penstock"},
		{"a broken systemctl", keeper, "exit 1", "", "", "penstock"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, text := range map[string]string{"penstock": c.penstock, "systemctl": c.systemctl} {
				if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			cmd := exec.Command("unshare", "-m", "sh", "-c", "mount -t tmpfs tmpfs /run && mkdir -p /run/systemd/system && exec sh \"$0\" configure 1.2.2", filepath.Join(root, "packaging", "postinstall.sh"))
			cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), c.env)
			out, err := cmd.CombinedOutput()
			if text := string(out); err != nil || !strings.Contains(text, c.want) || strings.Contains(text, c.never) {
				t.Errorf("%v, it says %q; want %q", err, text, c.want)
			}
		})
	}
}
