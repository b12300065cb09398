package archtest

import (
	"go/token"
	"strings"
	"testing"
)

// TestRulesBite checks that each rule can fail: each source breaks a rule, and want is part of the
// complaint. If want is empty, the source is fine.
func TestRulesBite(t *testing.T) {
	const lib = module + "/"
	for _, c := range []struct{ path, src, want string }{
		{"relay/x.go", `package relay; import "` + lib + `splice"`, "relay must not import splice"},
		{"relay/x.go", `package relay; import "` + lib + `pool"`, ""},
		{"relay/x.go", `package relay; import "` + lib + `internal/testnet"`, "must not import internal/testnet"},
		{"relay/x_test.go", `package relay; import "` + lib + `internal/testnet"`, ""},
		{"relay/x_test.go", `package relay_test; import "` + lib + `relay"`, ""},
		{"relay/x.go", `package relay; import "github.com/other/thing"`, "must not import github.com/other/thing"},
		{"pool/x.go", `package pool; import "golang.org/x/sys/unix"; var _ = unix.Read`, "pool must not import"},
		{"nowhere/x.go", `package nowhere`, "not in the table"},
		{"cmd/penstock/internal/app/x.go", `package app; import "` + lib + `internal/pump"`, "must not import internal/pump"},
		{"cmd/penstock/internal/spec/x.go", `package endpoint; import "` + lib + `cmd/penstock/internal/app"`, "must not import"},
		{"bench/x.go", `package bench; import "` + lib + `internal/sys"`, "must not import internal/sys"},
		{"bench/x.go", `package bench; import "` + lib + `bench/load"; import "github.com/other/thing"`, ""},

		{"relay/x.go", `package relay; import "syscall"; var _ = syscall.Read`, "syscall.Read belongs in internal/sys"},
		{"relay/x.go", `package relay; import "syscall"; var _ = syscall.EPIPE; var _ syscall.RawConn`, ""},
		{"relay/x.go", `package relay; import s "syscall"; var _ = s.Read`, "syscall.Read belongs"},
		{"relay/x.go", `package relay; import . "syscall"; var _ = Read`, "belongs in internal/sys"},
		{"relay/x.go", `package relay; import "unsafe"; var _ unsafe.Pointer`, "unsafe.Pointer belongs"},
		{"relay/x_test.go", `package relay; import "unsafe"; var _ unsafe.Pointer`, "unsafe.Pointer belongs"},
		{"pool/pin.go", "package pool; import _ \"unsafe\"\n//go:linkname a b\nfunc a()", ""},
		{"pool/x.go", `package pool; import "unsafe"; var _ = unsafe.SliceData([]int{})`, ""},
		{"pool/x.go", `package pool; import "unsafe"; var _ = unsafe.String(nil, 0)`, "unsafe.String belongs"},
		{"relay/x.go", "package relay; import _ \"unsafe\"\n//go:linkname a b\nfunc a()", "linkname"},
		{"internal/sys/x.go", `package sys; import "unsafe"; var _ unsafe.Pointer`, ""},

		{"relay/x.go", `package relay; import "log"`, "must not import log"},
		{"relay/x.go", `package relay; import "log/slog"; var _ = slog.Info`, "must not use slog.Info"},
		{"relay/x.go", `package relay; import "log/slog"; var _ slog.Value`, ""},
		{"relay/x_test.go", `package relay; import "log"`, ""},
		{"relay/x.go", `package relay; func init() {}`, "func init"},
		{"relay/x.go", `package relay; import "os"; var _ = os.Getenv("A")`, "must not use os.Getenv"},
		{"cmd/penstock/internal/app/x.go", `package app; import "log/slog"`, ""},
		{"cmd/penstock/internal/app/x.go", `package app; func init() {}`, "func init"},

		{"relay/x_stub.go", "//go:build !linux\n\npackage relay", ""},
		{"relay/x_stub.go", "//go:build darwin\n\npackage relay", "built for !linux"},
		{"relay/x_stub.go", "package relay", "built for !linux"},
		{"relay/x.go", "package relay\n// TO" + "DO: later\n", "unfinished"},
		{"relay/x.go", "package relay\n// \\ta = b\n", "a backslash and a t"},
		{"relay/x.go", "package relay\n//\ta = b\n", ""},
		{"relay/x.go", "package relay" + strings.Repeat("\n", maxLines+1), "split it"},
		{"relay/x.go", "package relay" + strings.Repeat("\n", maxLines), ""},
		{"relay/x.go", "package utils", "says nothing"},
	} {
		f, err := parseFile(token.NewFileSet(), c.path, []byte(c.src))
		if err != nil {
			t.Fatalf("%s: %v", c.src, err)
		}
		var all []string
		for _, check := range []func(*file) []string{checkImports, checkDoor, checkSilence, checkFile} {
			all = append(all, check(f)...)
		}
		got := strings.Join(all, "; ")
		if c.want == "" && got != "" || !strings.Contains(got, c.want) {
			src := c.src
			if len(src) > 100 {
				src = src[:100]
			}
			t.Errorf("%s: %s\ngot %q, want %q", c.path, src, got, c.want)
		}
	}
}
