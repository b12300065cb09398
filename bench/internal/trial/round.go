//go:build linux

package trial

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"github.com/penstock/penstock/bench/internal/proc"
)

// Round runs this program again for one round, with a word and with what the round needs as JSON, and reads its result. It runs on
// these CPUs if any are named, and in a network namespace of its own unless host is true.
func Round(word string, what any, cpus string, host bool, result any) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	text, err := json.Marshal(what)
	if err != nil {
		return err
	}
	run := func() error {
		if cpus != "" {
			if err := proc.Pin(cpus); err != nil {
				return err
			}
		}
		cmd := exec.Command(self, word, string(text))
		var failure strings.Builder
		cmd.Stderr = &failure
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		out, err := cmd.Output()
		if err != nil {
			return fmt.Errorf("%w\n%s%s", err, out, failure.String())
		}
		return json.Unmarshal(out, result)
	}
	if host {
		return proc.OnHost(run)
	}
	return proc.InNamespace("", run)
}

// InRound is the other side: it reads what the round needs, runs it, and prints its result.
func InRound[What, Result any](text string, run func(*What) (Result, error)) error {
	what := new(What)
	if err := json.Unmarshal([]byte(text), what); err != nil {
		return err
	}
	result, err := run(what)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(result)
}
