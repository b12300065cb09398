//go:build linux

package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A launch is how a relay is started: with which limits.
type launch struct {
	Argv       []string
	Dir        string // its own folder
	Files      uint64
	Cgroup     string // a folder whose cgroup.procs it joins
	ResolvConf string // in place of /etc/resolv.conf
	ReadOnly   bool
	NoCaps     bool
	User       int // with NoCaps, unless 0
	Monotonic  time.Duration
}

// becomeRelay is what the child does that sets limits for itself and then becomes the relay.
func becomeRelay(l *launch) error {
	runtime.LockOSThread() // capabilities are of a thread, and this one becomes the relay
	path, err := exec.LookPath(l.Argv[0])
	if err != nil {
		return err
	}
	if l.Files > 0 {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: l.Files, Max: l.Files}); err != nil {
			return fmt.Errorf("limit of descriptors: %w", err)
		}
	}
	if l.Cgroup != "" {
		if err := os.WriteFile(l.Cgroup+"/cgroup.procs", []byte("0"), 0); err != nil {
			return err
		}
	}
	if l.Monotonic != 0 {
		if err := unix.Unshare(unix.CLONE_NEWTIME); err != nil {
			return fmt.Errorf("make a time namespace: %w", err)
		}
		offsets := fmt.Sprintf("monotonic %d 0\nboottime %d 0\n", int64(l.Monotonic.Seconds()), int64(l.Monotonic.Seconds()))
		// This process enters it when it becomes the relay (fs/exec.c, exec_task_namespaces, Linux 6.1).
		if err := os.WriteFile("/proc/self/timens_offsets", []byte(offsets), 0); err != nil {
			return err
		}
	}
	if err := l.mounts(); err != nil {
		return err
	}
	if l.NoCaps {
		if err := l.drop(); err != nil {
			return err
		}
	}
	return unix.Exec(path, l.Argv, os.Environ())
}

// mounts changes what the relay sees of the file system; the process is alone in its mount namespace.
func (l *launch) mounts() error {
	if l.ResolvConf != "" {
		if err := unix.Mount(l.ResolvConf, "/etc/resolv.conf", "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("bind /etc/resolv.conf: %w", err)
		}
	}
	if !l.ReadOnly {
		return nil
	}
	if err := unix.Mount(l.Dir, l.Dir, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind %s: %w", l.Dir, err)
	}
	if err := unix.MountSetattr(unix.AT_FDCWD, "/", unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}); err != nil {
		return fmt.Errorf("read-only root: %w", err)
	}
	if err := unix.MountSetattr(unix.AT_FDCWD, l.Dir, 0, &unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY}); err != nil {
		return fmt.Errorf("writable %s: %w", l.Dir, err)
	}
	return nil
}

// drop gives up all capabilities for good, and the user if there is another one.
func (l *launch) drop() error {
	last, err := os.ReadFile("/proc/sys/kernel/cap_last_cap")
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(string(last[:len(last)-1]))
	if err != nil {
		return err
	}
	for c := range n + 1 {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(c), 0, 0, 0); err != nil {
			return fmt.Errorf("drop capability %d: %w", c, err)
		}
	}
	if l.User > 0 {
		if err := unix.Setgroups(nil); err != nil {
			return err
		}
		if err := unix.Setresgid(l.User, l.User, l.User); err != nil {
			return err
		}
		if err := unix.Setresuid(l.User, l.User, l.User); err != nil {
			return err
		}
	}
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	if err := unix.Capset(&hdr, &make([]unix.CapUserData, 2)[0]); err != nil {
		return fmt.Errorf("drop capabilities: %w", err)
	}
	return unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
}
