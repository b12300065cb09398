package systemd

import (
	"strconv"
	"testing"
)

func TestPassed(t *testing.T) {
	for _, c := range []struct {
		pid, fds string
		want     int
		fails    bool
	}{
		{"7", "2", 2, false},
		{"8", "2", 0, false},
		{"", "2", 0, false},
		{"7", "", 0, false},
		{"7", "0", 0, false},
		{"7", "-1", 0, true},
		{"7", "two", 0, true},
		{"7", "9223372036854775807", 0, true}, // a slice of as many would end the process
	} {
		env := map[string]string{"LISTEN_PID": c.pid, "LISTEN_FDS": c.fds}
		if n, err := Passed(func(name string) string { return env[name] }, 7); n != c.want || (err != nil) != c.fails {
			t.Errorf("%v: %d, %v", env, n, err)
		}
	}
}

func FuzzPassed(f *testing.F) {
	f.Add("7", "3")
	f.Add("7", "99999999999999999999")
	f.Fuzz(func(t *testing.T, pid, fds string) {
		env := map[string]string{"LISTEN_PID": pid, "LISTEN_FDS": fds}
		n, err := Passed(func(name string) string { return env[name] }, 7)
		if n < 0 || n > maxPassed || err != nil && n != 0 {
			t.Errorf("%d, %v", n, err)
		}
		if m, no := strconv.Atoi(fds); no == nil && pid == "7" && err == nil && m != n {
			t.Errorf("%q: %d", fds, n)
		}
	})
}
