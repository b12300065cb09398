package host

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestUnchanged(t *testing.T) {
	const text = `00400000-00f0c000 r-xp 00000000 08:01 12  /bin/penstock
Size:              11312 kB
Anonymous:             0 kB
VmFlags: rd ex mr mw me
00f0c000-01c21000 r--p 00b0c000 08:01 12  /bin/penstock
Anonymous:             0 kB
01c21000-01c22000 r--p 00b0c000 08:01 12  /bin/penstock
Anonymous:             4 kB
01c22000-01d0d000 rw-p 01821000 08:01 12  /bin/penstock
Anonymous:             0 kB
7f0000000000-7f0000001000 r-xp 00000000 08:01 13  /bin/other
Anonymous:             0 kB
7f0000001000-7f0000002000 rw-p 00000000 00:00 0 
Anonymous:             0 kB
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0  [vsyscall]
`
	want := []mapping{{0x400000, 0xf0c000}, {0xf0c000, 0x1c21000}}
	if got := unchangedMappings(strings.NewReader(text), "/bin/penstock"); !slices.Equal(got, want) {
		t.Errorf("%x, want %x", got, want)
	}
}

// The program's own mappings are found, and what is written is in none of them.
func TestUnchangedOfProgram(t *testing.T) {
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	list := unchangedMappings(f, program)
	has := func(v any) bool {
		p := reflect.ValueOf(v).Pointer()
		return slices.ContainsFunc(list, func(m mapping) bool { return m.start <= p && p < m.end })
	}
	if !has(TestUnchangedOfProgram) || has(&written) || has(new(int)) {
		t.Errorf("%x", list)
	}
	LeaveStart() // this process goes on
}

var written = 1
