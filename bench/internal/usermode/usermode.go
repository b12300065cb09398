//go:build linux

// Package usermode gets kernels of Debian: of any kind, and the one that is a program.
package usermode

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Program returns the path of Debian's user-mode-linux and the folder of its modules, which has the name of its release. It is downloaded into a
// folder unless it is there.
func Program(folder string) (program, modules string, err error) {
	program = filepath.Join(folder, "usr", "bin", "linux.uml")
	if _, err := os.Stat(program); err != nil {
		if err := Download("user-mode-linux", folder); err != nil {
			return "", "", err
		}
	}
	all, err := filepath.Glob(filepath.Join(folder, "usr", "lib", "uml", "modules", "*"))
	if err != nil || len(all) != 1 {
		return "", "", fmt.Errorf("modules of %d kernels in %s, %v", len(all), folder, err)
	}
	return program, all[0], nil
}

// Download unpacks a package of Debian into a folder.
func Download(name, folder string) error {
	fmt.Fprintf(os.Stderr, "downloading %s\n", name)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	cmd := exec.Command("apt-get", "download", name)
	cmd.Dir = folder
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("apt-get download: %w\n%s", err, text)
	}
	packages, err := filepath.Glob(filepath.Join(folder, "*.deb"))
	if err != nil || len(packages) != 1 {
		return fmt.Errorf("%d packages in %s, %v", len(packages), folder, err)
	}
	if text, err := exec.Command("dpkg", "-x", packages[0], folder).CombinedOutput(); err != nil {
		return fmt.Errorf("dpkg -x: %w\n%s", err, text)
	}
	return os.Remove(packages[0])
}
