package earlykeeper

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// broker opens what a worker may not open itself: keeper.Config.Broker.
func broker(policy, text string) (fd int, err error) {
	r, err := parseRequest(text)
	if err != nil {
		return -1, &fs.PathError{Op: "ask for", Path: "a file", Err: err}
	}
	p, err := ParsePolicy(policy)
	if err != nil {
		return -1, err
	}
	if fd, err = p.open(r); err != nil {
		return -1, &fs.PathError{Op: "open", Path: r.path, Err: err}
	}
	return fd, nil
}

func (p *Policy) open(r request) (int, error) {
	i := slices.IndexFunc(p.Logs, func(l Log) bool { return l.Path == r.path })
	switch {
	case p.Mode != ModeOn:
		return -1, errPolicy
	case r.append && i >= 0:
		return p.openLog(r.path, p.Logs[i].Mode)
	case !r.append && p.allows(r.path):
		return p.openFile(r.path)
	}
	return -1, errPolicy
}

// maxLinks bounds the links on the way to a file, as the kernel does.
const maxLinks = 40

// openAt opens a path, one name after the other. Links are followed where the worker cannot write, as those on the way to mounted
// secrets; where it can, there may be none, however the way led there. Those of /proc lead nowhere.
func (p *Policy) openAt(file string, flags, mode uint64) (int, error) {
	const look = unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC
	at, err := unix.Open("/", look|unix.O_DIRECTORY, 0)
	if err != nil {
		return -1, err
	}
	defer func() { unix.Close(at) }()
	rest, links := strings.TrimLeft(file, "/"), 0
	for {
		name, after, _ := strings.Cut(rest, "/")
		after = strings.TrimLeft(after, "/")
		if name == "" {
			name = "."
		}
		fd, err := -1, error(unix.ENOTDIR)
		if after != "" {
			fd, err = unix.Openat(at, name, look|unix.O_DIRECTORY, 0) // which has a folder mounted that is mounted on demand
		}
		if err == unix.ENOTDIR {
			fd, err = unix.Openat(at, name, look, 0)
		}
		var st unix.Stat_t
		if err == nil {
			if err = unix.Fstat(fd, &st); err != nil {
				unix.Close(fd)
				return -1, err
			}
		}
		switch {
		case err != nil && (after != "" || err != unix.ENOENT):
			return -1, err
		case err == nil && st.Mode&unix.S_IFMT == unix.S_IFLNK:
			var to string
			if links++; links <= maxLinks && (after != "" || flags&unix.O_NOFOLLOW == 0) {
				to, err = p.readLink(at, fd)
			} else {
				err = unix.ELOOP
			}
			unix.Close(fd)
			if err != nil {
				return -1, err
			}
			if rest = to + "/" + after; !strings.HasPrefix(to, "/") {
				continue
			}
			rest = strings.TrimLeft(rest, "/")
			if fd, err = unix.Open("/", look|unix.O_DIRECTORY, 0); err != nil {
				return -1, err
			}
			unix.Close(at)
			at = fd
		case after != "":
			unix.Close(at)
			at, rest = fd, after
		default: // the last name, which is not a link; or is one by now
			if err == nil {
				unix.Close(fd)
				if kind := st.Mode & unix.S_IFMT; kind != unix.S_IFREG && kind != unix.S_IFDIR {
					return -1, errKind // opening a device or a FIFO does something
				}
			}
			return unix.Openat(at, name, int(flags|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY), uint32(mode))
		}
	}
}

// readLink returns where a link in a folder leads to, if it may be followed.
func (p *Policy) readLink(folder, fd int) (string, error) {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return "", err
	}
	where, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(folder))
	if err != nil {
		return "", err
	}
	if _, writable := p.writable(where); writable || fs.Type == unix.PROC_SUPER_MAGIC {
		return "", unix.ELOOP
	}
	var to [unix.PathMax]byte
	n, err := unix.Readlinkat(fd, "", to[:])
	if err != nil {
		return "", err
	}
	return string(to[:n]), nil
}

func (p *Policy) openFile(file string) (int, error) {
	fd, err := p.openAt(file, unix.O_RDONLY, 0)
	if err != nil {
		return -1, err
	}
	return checkFile(fd, func(st *unix.Stat_t) bool {
		return st.Mode&unix.S_IFMT == unix.S_IFREG || st.Mode&unix.S_IFMT == unix.S_IFDIR
	})
}

// openLog opens a file to be appended to, and makes it with a mode if it is not there.
func (p *Policy) openLog(file string, mode uint32) (int, error) {
	const flags = unix.O_WRONLY | unix.O_APPEND | unix.O_NOFOLLOW
	fd, err := p.openAt(file, flags, 0)
	if errors.Is(err, unix.ENOENT) {
		fd, err = p.openAt(file, flags|unix.O_CREAT|unix.O_EXCL, uint64(mode&0o777))
		switch {
		case err == nil:
			unix.Fchmod(fd, mode&0o777) // whatever the umask is
		case errors.Is(err, unix.EEXIST): // somebody has made it meanwhile
			fd, err = p.openAt(file, flags, 0)
		}
	}
	if err != nil {
		return -1, err
	}
	return checkFile(fd, func(st *unix.Stat_t) bool { return st.Mode&unix.S_IFMT == unix.S_IFREG && st.Nlink == 1 })
}

var errKind = errors.New("not a regular file, or one with another name too")

// checkFile returns a descriptor if what it refers to is right.
func checkFile(fd int, right func(*unix.Stat_t) bool) (int, error) {
	var st unix.Stat_t
	err := unix.Fstat(fd, &st)
	if err == nil && !right(&st) {
		err = errKind
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// checkBinary refuses a binary that a worker in its sandbox may have written itself: keeper.Config.CheckBinary. The next worker begins
// with the keeper's privileges.
func checkBinary(policy, _ string, fd int) error {
	if policy == "" {
		return nil // the worker had no sandbox
	}
	p, err := ParsePolicy(policy)
	if err != nil {
		return err
	}
	var st unix.Stat_t
	if p.Mode != ModeOn {
		return nil
	}
	if err := unix.Fstat(fd, &st); err != nil {
		return os.NewSyscallError("fstat", err)
	}
	file, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
	_, writable := p.writable(file)
	here, err2 := os.Readlink("/proc/self/cwd")
	_, writableHere := p.writable(here)
	switch {
	case err != nil || err2 != nil:
		return errors.Join(err, err2)
	case st.Mode&unix.S_IFMT != unix.S_IFREG || st.Nlink == 0 || !strings.HasPrefix(file, "/"):
		return errors.New("it is not a file of a file system (sandbox)")
	case p.WritesNowhereElse && writable:
		return fmt.Errorf("the worker, which is in a sandbox, can write at %s itself; allowed: a file elsewhere, or at the path of the running one", path.Dir(file))
	case p.WritesNowhereElse && writableHere: // an interpreter would run a file there: its first argument is "run" or "relay"
		return fmt.Errorf("the keeper was started in %s, where the worker, which is in a sandbox, can write; allowed: a start in another folder (WorkingDirectory= of systemd), or a file at the path of the running one", here)
	case !p.WritesNowhereElse && p.Becomes && (int(st.Uid) == p.UID || st.Mode&0o022 != 0):
		return fmt.Errorf("the worker, which is in a sandbox, may have written it (owner %d, mode %o); allowed: a file of another user that nobody else can write, or one at the path of the running one", st.Uid, st.Mode&0o7777)
	}
	return nil
}
