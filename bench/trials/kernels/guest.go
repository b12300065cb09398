//go:build linux

package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/penstock/penstock/bench/internal/usermode"
)

// virtme is the version of virtme-ng that boots kernels.
const virtme = "virtme-ng==1.42"

// run runs the jobs under a kernel, and says after each how it went.
func (s *setup) run(kernel string, chosen []job) (*column, error) {
	results := filepath.Join(s.work, "results", kernel)
	if !s.add {
		if err := os.RemoveAll(results); err != nil {
			return nil, err
		}
	}
	if err := os.MkdirAll(results, 0o755); err != nil {
		return nil, err
	}
	for _, j := range chosen {
		if err := os.RemoveAll(j.file(results) + ".code"); err != nil {
			return nil, err
		}
	}
	script := filepath.Join(results, "script.sh")
	if err := os.WriteFile(script, []byte(s.script(chosen, results)), 0o755); err != nil {
		return nil, err
	}
	cmd, err := s.command(kernel, script)
	if err != nil {
		return nil, err
	}
	console, err := os.Create(filepath.Join(results, "console"))
	if err != nil {
		return nil, err
	}
	defer console.Close()
	cmd.Stdout, cmd.Stderr = console, console
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stop := func() { syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) } // QEMU is its child
	begin := time.Now()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	defer stop()
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	c := &column{kernel: kernel, results: map[string]result{}}
	look := time.NewTicker(time.Second)
	defer look.Stop()
	for over := false; !over; {
		select {
		case err = <-ended:
			over = true
		case <-signals:
			fmt.Fprintln(os.Stderr, "interrupted: the table has what has ended")
			stop()
		case <-look.C:
		}
		for _, j := range chosen {
			if _, known := c.results[j.name]; known {
				continue
			}
			r, there := readResult(results, j)
			if !there {
				break // they run one after another
			}
			c.results[j.name] = r
			fmt.Fprintf(os.Stderr, "%-8s %-36s %-40s %v\n", kernel, j.name, r.short(), time.Since(begin).Round(time.Second))
		}
	}
	if s.add {
		for _, j := range jobs {
			if r, there := readResult(results, j); there {
				c.results[j.name] = r
			}
		}
	}
	release, readErr := os.ReadFile(filepath.Join(results, "release"))
	if readErr != nil {
		return nil, errors.Join(err, fmt.Errorf("it has not begun, see %s", console.Name()))
	}
	c.release = strings.TrimSpace(string(release))
	return c, nil
}

// command returns what runs a script under a kernel.
func (s *setup) command(kernel, script string) (*exec.Cmd, error) {
	switch kernel {
	case here:
		return exec.Command("unshare", "--net", "--mount", "bash", script), nil // a network of its own, as a guest has
	case userMode:
		return s.userMode(script)
	}
	image, err := s.image(kernel)
	if err != nil {
		return nil, err
	}
	boot, err := s.virtme()
	if err != nil {
		return nil, err
	}
	return exec.Command(boot, "--kimg", image, "--mods", "auto", "--disable-kvm", "--memory", s.memory, "--cpus", strconv.Itoa(s.cpus),
		"--rw", "--pwd", "--show-boot-console", "--script-sh", "bash "+script), nil
}

// virtme installs the program that boots kernels, unless it is there.
func (s *setup) virtme() (string, error) {
	if err := haveTools("qemu-system-x86_64", "busybox", "depmod", "python3"); err != nil {
		return "", err
	}
	venv := filepath.Join(s.work, "venv")
	program := filepath.Join(venv, "bin", "virtme-run")
	if _, err := os.Stat(program); err == nil {
		return program, nil
	}
	return program, steps([]string{"python3", "-m", "venv", venv}, []string{filepath.Join(venv, "bin", "pip"), "install", "-q", virtme})
}

// debianImage matches the packages of kernels that are neither for clouds nor for real time.
var debianImage = regexp.MustCompile(`(?m)^linux-image-(\d[^ ]*-amd64) `)

// image returns the path of the newest kernel of Debian whose release begins with what is given, and whose modules are where modprobe looks for
// them.
func (s *setup) image(begins string) (string, error) {
	text, err := exec.Command("apt-cache", "search", "--names-only", "^linux-image-"+regexp.QuoteMeta(begins)+`\.`).Output()
	if err != nil {
		return "", fmt.Errorf("apt-cache: %w", err)
	}
	var releases []string
	for _, m := range debianImage.FindAllStringSubmatch(string(text), -1) {
		if !strings.Contains(m[1], "-cloud-") && !strings.Contains(m[1], "-rt-") {
			releases = append(releases, m[1])
		}
	}
	if len(releases) == 0 {
		return "", errors.New("no repository of this host has it")
	}
	release := slices.MaxFunc(releases, byNumbers)
	folder := filepath.Join(s.work, release)
	image := filepath.Join(folder, "boot", "vmlinuz-"+release)
	if _, err := os.Stat(image); err != nil {
		if err := usermode.Download("linux-image-"+release, folder); err != nil {
			return "", err
		}
		if err := steps([]string{"depmod", "-b", folder, release}); err != nil {
			return "", err
		}
	}
	return image, linkModules(filepath.Join(folder, "lib", "modules", release))
}

// linkModules makes a folder of modules known to modprobe, unless there is one of this release.
func linkModules(folder string) error {
	link := filepath.Join("/lib/modules", filepath.Base(folder))
	if _, err := os.Stat(link); err == nil {
		return nil
	}
	if err := os.MkdirAll("/lib/modules", 0o755); err != nil {
		return err
	}
	os.Remove(link) // to what is gone
	return os.Symlink(folder, link)
}

var numbers = regexp.MustCompile(`\d+`)

// byNumbers compares releases by the numbers in them.
func byNumbers(a, b string) int {
	as, bs := numbers.FindAllString(a, -1), numbers.FindAllString(b, -1)
	return slices.CompareFunc(as, bs, func(a, b string) int {
		x, _ := strconv.Atoi(a)
		y, _ := strconv.Atoi(b)
		return cmp.Compare(x, y)
	})
}

// haveTools says which Debian packages are missing.
func haveTools(programs ...string) error {
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			return fmt.Errorf("%w: apt-get install qemu-system-x86 busybox-static kmod python3-venv", err)
		}
	}
	return nil
}

// steps runs commands, one after another.
func steps(commands ...[]string) error {
	for _, c := range commands {
		if text, err := exec.Command(c[0], c[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", strings.Join(c, " "), err, text)
		}
	}
	return nil
}
