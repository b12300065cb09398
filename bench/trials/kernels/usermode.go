//go:build linux

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/penstock/penstock/bench/internal/usermode"
)

// userMode stands for Debian's kernel that is a program of this host's: it has one processor, whose code runs as fast as here, system calls that
// are slow, and neither Landlock nor a second processor. It is for what an emulated processor takes too long for.
const userMode = "uml"

// userMode returns what runs a script under it.
func (s *setup) userMode(script string) (*exec.Cmd, error) {
	program, modules, err := usermode.Program(filepath.Join(s.work, userMode))
	if err != nil {
		return nil, err
	}
	if err := linkModules(modules); err != nil {
		return nil, err
	}
	init := filepath.Join(filepath.Dir(script), "init.sh")
	text := fmt.Sprintf("#!/bin/bash\nmount -t proc proc /proc; mount -t sysfs sysfs /sys; mkdir -p /dev/shm; mount -t tmpfs tmpfs /dev/shm; mount -t tmpfs tmpfs /run\n"+
		"cd %s; bash %s\necho o >/proc/sysrq-trigger; sleep 9\n", s.root, script)
	if err := os.WriteFile(init, []byte(text), 0o755); err != nil {
		return nil, err
	}
	return exec.Command(program, "mem="+s.memory, "root=/dev/root", "rootfstype=hostfs", "rootflags=/", "rw", "init="+init, "con=null", "con0=null,fd:1"), nil
}
