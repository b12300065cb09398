//go:build linux

// bogo has BoringSSL's test runner (BoGo, https://boringssl.googlesource.com/boringssl/+/HEAD/ssl/test/PORTING.md) talk to an engine
// that ends or begins TLS, and to crypto/tls without an engine:
//
//	go run ./bench/trials/bogo -boringssl DIR          # a checkout
//	go run ./bench/trials/bogo -boringssl DIR -as gotls,kernel -test 'KeyUpdate*'
//
// A test that ends otherwise in an engine is a fault, unless it is known why. The runner leaves out the tests that ask for what this program does
// not offer, such as DTLS, early data or a callback.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/penstock/penstock/bench/internal/trial"
	"github.com/penstock/penstock/relay/hold"
)

var localhost = netip.MustParseAddrPort("127.0.0.1:0")

func main() {
	if slices.Contains(os.Args, "-is-handshaker-supported") {
		fmt.Println("No")
		return
	}
	if slices.Contains(os.Args, "-shim-id") {
		s, err := parseShim(os.Args[1:])
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(unimplemented)
		}
		if err := s.run(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	var s setup
	flag.StringVar(&s.checkout, "boringssl", "", "a checkout of BoringSSL; ssl, util/testresult and go.mod of it are enough")
	flag.StringVar(&s.runner, "runner", "", "its runner, as go test -c ./ssl/test/runner makes it; built unless given")
	flag.StringVar(&s.as, "as", "gotls,engine,kernel", "TLS stacks; kernel is left out if the kernel has no TLS")
	flag.StringVar(&s.tests, "test", "*", "tests, as the runner's flag of that name wants them")
	flag.IntVar(&s.workers, "workers", 4, "tests at the same time")
	flag.StringVar(&s.dir, "dir", "bin/bogo", "what the runner says goes into this folder")
	flag.Parse()
	trial.Main("bogo", s.run)
}

type setup struct {
	checkout, runner, as, tests, dir string
	workers                          int
}

// known are the tests that end otherwise once the kernel has the connection, and why: see docs/tls.md.
var known = map[string]string{}

func init() {
	for why, tests := range map[string]string{
		"tickets that come then are not kept": "ALPNClient-TLS-TLS13 CertificateInResumption-TLS13 CertificateRequestInResumption-TLS13 " +
			"Resume-Client-CipherMismatch-TLS13 Resume-Client-TLS13-TLS13-TLS SendEmptySessionTicket-TLS13 TLS13-TestBadTicketAge-Client " +
			"TLS13SessionID-TLS13 TolerateServerNameAck-TLS-TLS13",
		"the kernel says only that there is no record": "LargePlaintext LargePlaintext-TLS13-Padded-16384-1 LargePlaintext-TLS13-Padded-8193-8192",
		"the kernel skips empty records":               "SendEmptyRecords",
		"a KeyUpdate ends the connection":              "KeyUpdate-ToClient KeyUpdate-ToServer",
	} {
		for test := range strings.FieldsSeq(tests) {
			known[test] = why
		}
	}
}

// outcomes are what the runner says of each test: PASS, FAIL or SKIP.
type outcomes map[string]string

func (s *setup) run() error {
	if s.checkout == "" {
		return errors.New("-boringssl names no checkout")
	}
	var err error
	if s.dir, err = filepath.Abs(s.dir); err != nil {
		return err
	}
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		return err
	}
	if err := os.RemoveAll(s.noted("kernel")); err != nil {
		return err
	}
	if s.runner == "" {
		s.runner = filepath.Join(s.dir, "runner")
		cmd := exec.Command("go", "test", "-c", "-o", s.runner, "./ssl/test/runner")
		cmd.Dir, cmd.Env = s.checkout, append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build the runner: %w\n%s", err, out)
		}
	}
	all := make(map[string]outcomes)
	var chosen []string
	for as := range strings.SplitSeq(s.as, ",") {
		if stacks[as] == nil {
			return fmt.Errorf("-as has %q, which is none of %s", as, strings.Join(names, ", "))
		}
		if err := hold.CheckKernelTLS(); as == "kernel" && err != nil {
			fmt.Printf("kernel: left out: %v\n", err)
			continue
		}
		if all[as], err = s.ask(as, s.tests, s.workers); err != nil {
			return err
		}
		if as == "gotls" { // what it leaves out, the others do, too
			s.tests = strings.Join(all[as].asked(), ";")
		}
		chosen = append(chosen, as)
		fmt.Printf("%s: %s\n", as, all[as])
		if as == "kernel" {
			noted, err := os.ReadFile(s.noted(as))
			if err != nil {
				return fmt.Errorf("no connection was the kernel's: %w", err)
			}
			fmt.Printf("kernel: %d connections ended as the kernel's\n", len(noted))
		}
	}
	faults := 0
	for _, as := range chosen {
		if as == "gotls" || all["gotls"] == nil {
			continue
		}
		differ := all["gotls"].differ(all[as])
		if len(differ) > 0 { // once more, one after the other
			again := make(map[string]outcomes)
			for _, who := range []string{"gotls", as} {
				if again[who], err = s.ask(who, strings.Join(differ, ";"), 1); err != nil {
					return err
				}
			}
			once := differ
			differ = again["gotls"].differ(again[as])
			for _, test := range once {
				if !slices.Contains(differ, test) {
					fmt.Printf("%s: %s, and gotls: %s: %s: not when it was alone\n", as, all[as][test], all["gotls"][test], test)
				}
			}
			for _, test := range differ {
				why := known[test]
				if as != "kernel" || why == "" {
					faults, why = faults+1, "not explained"
				}
				fmt.Printf("%s: %s, and gotls: %s: %s: %s\n", as, again[as][test], again["gotls"][test], test, why)
			}
		}
	}
	if faults > 0 {
		return fmt.Errorf("%d tests end otherwise than with crypto/tls", faults)
	}
	return nil
}

// noted is the file of shim.noted.
func (s *setup) noted(as string) string { return filepath.Join(s.dir, as+".noted") }

// ask runs tests in one way.
func (s *setup) ask(as, tests string, workers int) (outcomes, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	file := filepath.Join(s.dir, as+".json")
	runner, err := filepath.Abs(s.runner)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(runner, "-shim-path", self, "-shim-extra-flags", "-as;"+as+";-noted;"+s.noted(as), "-allow-unimplemented", "-loose-errors", "-pipe",
		"-json-output", file, "-num-workers", fmt.Sprint(workers), "-test", tests, "-skip", "*-DTLS*;*-QUIC*;*-Async*", "-test.timeout", "2h")
	cmd.Dir = filepath.Join(s.checkout, "ssl/test/runner")
	said, err := cmd.CombinedOutput()
	var failed *exec.ExitError
	if err != nil && !errors.As(err, &failed) {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(s.dir, as+".said"), said, 0o644); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, trial.Tail(string(said), 20))
	}
	var result struct {
		Tests map[string]struct{ Actual string }
	}
	if err := json.Unmarshal(text, &result); err != nil {
		return nil, err
	}
	all := make(outcomes)
	for name, t := range result.Tests {
		all[name] = t.Actual
	}
	return all, nil
}

func (o outcomes) String() string {
	count := make(map[string]int)
	for _, what := range o {
		count[what]++
	}
	return fmt.Sprintf("%d tests, %d passed, %d failed, %d left out", len(o), count["PASS"], count["FAIL"], count["SKIP"])
}

// asked returns the tests that were not left out.
func (o outcomes) asked() (asked []string) {
	for name, what := range o {
		if what != "SKIP" {
			asked = append(asked, name)
		}
	}
	return asked
}

// differ returns the tests that one passes and the other fails.
func (o outcomes) differ(other outcomes) (differ []string) {
	for _, name := range slices.Sorted(maps.Keys(o)) {
		if a, b := o[name], other[name]; a != b && (a == "PASS" || b == "PASS") {
			differ = append(differ, name)
		}
	}
	return differ
}
