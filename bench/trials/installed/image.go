//go:build linux

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/penstock/penstock/bench/internal/proc"
	"github.com/penstock/penstock/bench/internal/usermode"
)

// release is the Debian of the guest, and packages what it has besides its essential ones.
const release = "bookworm"

var packages = []string{"systemd", "systemd-sysv", "dbus", "dbus-user-session", "libpam-systemd", "iproute2", "procps", "kmod", "logrotate", "rpm",
	"podman", "crun", "fuse-overlayfs", "slirp4netns", "uidmap"}

// shared returns the path of a file in the folder that the guest sees as /trial.
func (s *setup) shared(name string) string { return filepath.Join(s.work, "shared", name) }

// build makes what the guest needs: the packages of both versions, this program, and a disk.
func (s *setup) build() error {
	if err := os.RemoveAll(s.shared("")); err != nil {
		return err
	}
	if err := os.MkdirAll(s.shared(""), 0o755); err != nil {
		return err
	}
	from := s.packages
	if from == "" {
		from = filepath.Join(s.work, "packages")
		for _, version := range []string{older, newer} {
			fmt.Fprintf(os.Stderr, "making the packages of %s\n", version)
			if err := run("go", "run", "./cmd/penstock/dist", "-arch", "amd64", "-version", "v"+version, "-out", from); err != nil {
				return err
			}
		}
	}
	if err := run("cp", "-r", from+"/.", s.shared("")); err != nil {
		return err
	}
	archive := "penstock-" + newer + "-linux-amd64"
	if err := run("tar", "-xzf", s.shared(archive+".tar.gz"), "-C", s.shared(""), "--strip-components=3", archive+"/usr/bin/penstock"); err != nil {
		return err
	}
	if err := run("env", "CGO_ENABLED=0", "go", "build", "-buildvcs=false", "-o", s.shared("installed"), "./bench/trials/installed"); err != nil {
		return err
	}
	return s.disk()
}

// disk makes the guest's disk. Debian's files are downloaded once.
func (s *setup) disk() error {
	root := filepath.Join(s.work, "root")
	if _, err := os.Stat(root); err != nil {
		fmt.Fprintf(os.Stderr, "downloading Debian %s: some minutes\n", release)
		half := root + ".half"
		if err := os.RemoveAll(half); err != nil {
			return err
		}
		if err := run("mmdebstrap", "--variant=apt", "--include="+strings.Join(packages, ","), release, half); err != nil {
			return err
		}
		if err := os.Rename(half, root); err != nil {
			return err
		}
	}
	_, modules, err := usermode.Program(s.kernel)
	if err != nil {
		return err
	}
	const units = "etc/systemd/system/"
	for name, text := range map[string]string{
		"etc/fstab":    fmt.Sprintf("/dev/ubda / ext4 defaults 0 0\nnone %s hostfs %s 0 0\nnone /usr/lib/modules hostfs %s 0 0\n", shared, s.shared(""), filepath.Dir(modules)),
		"etc/hostname": "guest\n",
		"etc/modules":  "overlay\nfuse\ntun\n",
		units + "trial.service": "[Unit]\nAfter=multi-user.target\n[Service]\nExecStart=" + shared + "/installed inside '" + s.cases + "'\nStandardOutput=file:" + shared + "/trial.out\n" +
			"StandardError=inherit\nExecStopPost=systemctl poweroff\n[Install]\nWantedBy=multi-user.target\n",
	} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	for _, folder := range []string{shared, "/usr/lib/modules", "/" + units + "multi-user.target.wants"} {
		if err := os.MkdirAll(filepath.Join(root, folder), 0o755); err != nil {
			return err
		}
	}
	for link, to := range map[string]string{"multi-user.target.wants/trial.service": "../trial.service", "podman-auto-update.service": "/dev/null", "podman.service": "/dev/null"} {
		if err := os.Symlink(to, filepath.Join(root, units, link)); err != nil && !os.IsExist(err) {
			return err
		}
	}
	image := filepath.Join(s.work, "disk")
	if err := os.Remove(image); err != nil && !os.IsNotExist(err) {
		return err
	}
	return run("mkfs.ext4", "-q", "-d", root, image, "3G")
}

// boot switches the guest on.
func (s *setup) boot() (*proc.Process, error) {
	program, _, err := usermode.Program(s.kernel)
	if err != nil {
		return nil, err
	}
	guest := &proc.Process{Dir: s.shared(""), Argv: []string{program, "mem=" + s.memory, "ubd0=" + filepath.Join(s.work, "disk"), "root=/dev/ubda", "rw", "con=null", "con0=null,fd:1"}}
	return guest, guest.Begin()
}

// run runs a program in the root of the repository.
func run(argv ...string) error {
	if text, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(argv, " "), err, text)
	}
	return nil
}
