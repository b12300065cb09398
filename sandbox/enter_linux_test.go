package sandbox

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

func TestPolicyErrors(t *testing.T) {
	for name, p := range map[string]Policy{
		"empty path":      {Read: []string{""}},
		"zero byte":       {Write: []string{"a\x00b"}},
		"many paths":      {Read: make([]string, maxEntries+1)},
		"many ports":      {Connect: make([]uint16, maxEntries), Bind: []uint16{1}},
		"negative user":   {User: &User{UID: -1}},
		"negative groups": {User: &User{Groups: []int{-1}}},
		"unknown mode":    {Mode: Log + 1},
	} {
		if _, err := Enter(p); !errors.Is(err, ErrPolicy) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// In the mode Log everything still works, and the report does not claim that anything holds but no_new_privs.
func TestLog(t *testing.T) {
	needs(t, Calls)
	r := newRig(t)
	a := r.run(order{Policy: Policy{Mode: Log, User: nobody}, Target: r.target, Enter: true, Attack: true, Work: &r.work})
	if a.Err != "" || len(a.Failed) > 0 {
		t.Errorf("error %q, what does not work: %q", a.Err, a.Failed)
	}
	for _, s := range a.Report.Layers {
		if s.Held != (s.Layer == NoNewPrivs) || !s.Held && s.Why != "only logging" {
			t.Errorf("%v: %+v", s.Layer, s)
		}
	}
	for _, x := range a.Results["a new thread"] {
		if x.Name == "open a file" && x.Errno != 0 {
			t.Errorf("%s: %s", x.Name, x.Text)
		}
	}
}

// Layers that are not wanted, paths that do not exist, and a capability that stays.
func TestParts(t *testing.T) {
	needs(t, Files, Calls)
	r := newRig(t)
	none := filepath.Join(r.dir, "none")
	a := r.run(order{Policy: Policy{Read: []string{none}, AnyConnect: true, AnyBind: true, Without: []Layer{Scope}, Keep: []Capability{NetBindService}}, Enter: true})
	if len(a.Report.Absent) != 1 || a.Report.Absent[0] != none {
		t.Errorf("absent: %q", a.Report.Absent)
	}
	for _, l := range []Layer{Network, Scope, Credentials} {
		if s := a.Report.Layers[l]; s.Held || s.Wanted || s.Why == "" {
			t.Errorf("%v: %+v", l, s)
		}
	}
	if privileged(6, 7, 8, int(NetBindService)) {
		r.checkKept()
	}
}

// checkKept looks at capabilities that stay, also when the user changes.
func (r *rig) checkKept() {
	r.Helper()
	for _, user := range []*User{nil, nobody} {
		a := r.run(order{Policy: Policy{Read: []string{"/proc"}, User: user, Keep: []Capability{NetBindService}}, Enter: true})
		if s := a.Report.Layers[Capabilities]; !s.Held {
			r.Errorf("capabilities: %+v", s)
		}
		for _, thread := range a.Threads {
			if thread["CapEff"] != "0000000000000400" || thread["CapPrm"] != thread["CapEff"] || thread["CapBnd"] != thread["CapEff"] {
				r.Errorf("thread %s has %s, %s, %s", thread["Pid"], thread["CapEff"], thread["CapPrm"], thread["CapBnd"])
			}
		}
	}
}

// A program that is linked with cgo is told what does not hold, and what does really does.
func TestCgo(t *testing.T) {
	if os.Getenv("PENSTOCK_SANDBOX_CGO") == "" {
		t.Skip("it compiles a program with a C compiler; PENSTOCK_SANDBOX_CGO=1 runs it")
	}
	path := filepath.Join(t.TempDir(), "child")
	cmd := exec.Command("go", "build", "-o", path, "./testdata/child")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	r := newRig(t)
	p := r.policy()
	p.AnyFile = true // or the C library could not load what it needs
	a := r.run(order{Policy: p, Enter: true}, func(c *exec.Cmd) { c.Path = path })
	for _, s := range a.Report.Layers {
		t.Logf("%v: %+v", s.Layer, s)
	}
	for _, l := range []Layer{NoNewPrivs, Calls} {
		if !a.Report.Held(l) {
			t.Errorf("%v does not hold", l)
		}
	}
	for _, thread := range a.Threads {
		if thread["NoNewPrivs"] != "1" || thread["Seccomp"] != "2" {
			t.Errorf("thread %s: %s, %s", thread["Pid"], thread["NoNewPrivs"], thread["Seccomp"])
		}
	}
}
