package sys

import (
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"
)

// A program that is open at a descriptor is started whatever the numbers of its descriptor and of those that it gets are: in the child, package
// syscall moves descriptors to their places, over what is there.
func TestStartProgramAtAnyNumber(t *testing.T) {
	path, err := exec.LookPath("true")
	if err != nil {
		t.Skip(err)
	}
	file, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(file)
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(null)
	// at duplicates a descriptor to a number; -1: that is in use.
	at := func(fd, number int) int {
		got, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, number)
		if err != nil {
			t.Fatal(err)
		}
		if got != number {
			unix.Close(got)
			return -1
		}
		return got
	}
	const highest = 40
	started := 0
	for number := 3; number < highest+12; number++ {
		program := at(file, number)
		if program < 0 {
			continue
		}
		for _, last := range []int{null, highest} { // files that stay, and files that are moved down from far above
			if last == highest {
				if last = at(null, highest); last < 0 {
					continue
				}
			}
			for _, files := range [][]int{{null, null, null}, {null, null, null, last}, {last, null, null, null, last, null, null, last}, {last, last, last, last, 2, 1, 0, 2, 1, 0, last}} {
				pid, e := StartProgram(program, []string{"true"}, nil, "", files)
				if e != 0 {
					t.Errorf("a program at %d with the files %v: %v", number, files, e)
					continue
				}
				started++
				if e := WaitExit(pid); e != 0 {
					t.Fatal(e)
				}
				if code, signal, ok := Reap(pid); code != 0 || signal != 0 || !ok {
					t.Errorf("a program at %d with the files %v: exit code %d, signal %d, %v", number, files, code, signal, ok)
				}
			}
			if last == highest {
				unix.Close(last)
			}
		}
		unix.Close(program)
	}
	if started < 100 {
		t.Errorf("only %d programs were started", started)
	}
}
