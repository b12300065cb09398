package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/penstock/penstock/internal/testnet"
)

// What docs/upgrades.md tells people to try works as it stands there.
func TestUpgradesTry(t *testing.T) {
	need(t, "bash", "pkill")
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "upgrades.md"))
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```bash\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	if len(blocks) != 1 {
		t.Fatalf("%d blocks of bash, want one", len(blocks))
	}
	dir := shortDir(t)
	if err := os.Symlink(binary, filepath.Join(dir, "penstock")); err != nil {
		t.Fatal(err)
	}
	script := strings.NewReplacer("7000", testnet.Port(t), "/tmp/outlive.sock", filepath.Join(dir, "outlive.sock")).Replace(blocks[0][1])
	cmd := exec.Command("timeout", fmt.Sprint(4*int(patience.Seconds())), "bash", "-c", script+"\nwait\n")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "GORACE=atexit_sleep_ms=0")
	out, err := cmd.CombinedOutput()
	log, _ := os.ReadFile(filepath.Join(dir, "outlive.log"))
	if err != nil {
		t.Fatalf("%v\n%s\nthe log: %s", err, out, log)
	}
	rest := string(out)
	for _, want := range []string{"hello\n", "after the crash\n", "after the upgrade\n", "1 crash", "1 upgrade"} {
		_, after, ok := strings.Cut(rest, want)
		if !ok {
			t.Fatalf("%q does not come in time in\n%s\nthe log: %s", want, out, log)
		}
		rest = after
	}
}
