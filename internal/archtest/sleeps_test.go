package archtest

import (
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"slices"
	"strings"
	"testing"
)

// mostSleeps bounds the table below. It goes down, not up.
const mostSleeps = 20

// sleeps are the places at which tests sleep on the real clock, by file and function, with the number of calls of time.Sleep there. Whoever
// waits for something waits for the event or with package testwait; a test of package relay lets time pass on the engine's clock (rig.pass);
// a test in testing/synctest may sleep as it likes, and is not listed.
var sleeps = map[string]struct {
	n   int
	why string
}{
	"cmd/penstock/internal/dashboard/readme_test.go lapse":                {1, "a tool: the load of the picture, and charts of a browser that have redrawn"},
	"cmd/penstock/internal/fleet/scale_test.go lapse":                     {1, "a measurement, off by default"},
	"bench/pool/pool_test.go new":                                         {1, "a benchmark: what is expensive to make"},
	"cmd/penstock/descriptors_test.go TestFewDescriptorsAndASlowUpstream": {1, "a limit of a whole daemon, a second: not settable"},
	"cmd/penstock/internal/etcd/faults_test.go TestTokens":                {1, "the life of a token of a real etcd"},
	"cmd/penstock/outlive_steps_test.go TestKeeperDiesDuringUpgrade":      {1, "a kill at several moments"},
	"dgram/metadata_linux_test.go TestTime":                               {1, "time stamps of the real kernel"},
	"internal/pump/half_linux_test.go TestSlowReader":                     {1, "a turn moves nothing several times in a row: to become a script of the simulated kernel"},
	"internal/pump/urgent_linux_test.go TestUrgent":                       {1, "urgent data has arrived: to become a script of the simulated kernel"},
	"keeper/item_linux_test.go TestHoldConn":                              {1, "a send has begun to wait in the kernel: nothing tells of that"},
	"keeper/upgrade_linux_test.go TestUpgradeWhileKeeperIsReplaced":       {1, "a signal at several moments"},
	"keeper/upgrade_linux_test.go TestWorkerDiesWhileKeeperIsReplaced":    {1, "a kill at several moments"},
	"relay/datagram_keep_linux_test.go TestDatagramLoadOutlivesKills":     {1, "a kill at a random moment"},
	"relay/example_linux_test.go ExampleFlowRef_Resume":                   {1, "an example: a lookup that takes a while"},
	"relay/gap_linux_test.go gap":                                         {1, "a process that is stopped for longer than a time-out"},
	"relay/lastcall_linux_test.go receive":                                {1, "a slow reader: its pace"},
	"relay/stw_linux_test.go benchmarkSTW":                                {1, "a benchmark: its load has begun, which peers in other processes make"},
	"relay/timers_linux_test.go TestIdleLoopsSleep":                       {1, "counts waits of a while: to become a script of the simulated kernel"},
	"splice/copy_test.go TestEndBehindPipe":                               {1, "an end has arrived behind bytes that nobody takes"},
	"splice/rig_test.go fillUp":                                           {1, "a reader takes nothing for longer than TCP delays its window"},
}

// TestSleeps holds the table.
func TestSleeps(t *testing.T) {
	found := map[string]int{}
	for _, f := range tree(t) {
		for _, at := range sleepsIn(f) {
			found[at]++
		}
	}
	sum := 0
	for _, at := range slices.Sorted(maps.Keys(found)) {
		sum += found[at]
		if row, ok := sleeps[at]; !ok || row.n < found[at] {
			t.Errorf("%s: %d calls of time.Sleep, and %d are in the table: wait for the event, or with testwait.Until", at, found[at], row.n)
		}
	}
	for at, row := range sleeps {
		if row.n > found[at] {
			t.Errorf("%s: %d calls of time.Sleep are left of %d: lower the row", at, found[at], row.n)
		}
		if row.why == "" {
			t.Errorf("%s has no reason", at)
		}
	}
	if sum != mostSleeps {
		t.Errorf("tests sleep at %d places, and mostSleeps is %d", sum, mostSleeps)
	}
}

// sleepsIn returns "FILE FUNCTION" of each sleep in tests and in what only tests use, apart from those in synctest.Test: a call of time.Sleep, and
// a statement that only waits for time.After.
func sleepsIn(f *file) (at []string) {
	if !f.test && !slices.Contains(testOnly, f.pkg) || f.pkg == "internal/testwait" {
		return nil
	}
	for _, d := range f.syntax.Decls {
		name := "a variable"
		if fn, ok := d.(*ast.FuncDecl); ok {
			name = fn.Name.Name
		}
		ast.Inspect(d, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				if isCall(n, "synctest", "Test") {
					return false
				}
				if isCall(n, "time", "Sleep") {
					at = append(at, fmt.Sprint(f.path, " ", name))
				}
			case *ast.ExprStmt:
				if x, ok := n.X.(*ast.UnaryExpr); ok && x.Op == token.ARROW {
					if call, ok := x.X.(*ast.CallExpr); ok && isCall(call, "time", "After") {
						at = append(at, fmt.Sprint(f.path, " ", name))
					}
				}
			case *ast.CommClause: // of a select, which waits for something else, too
				n.Comm = nil
			}
			return true
		})
	}
	return at
}

func isCall(call *ast.CallExpr, pkg, name string) bool {
	s, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || s.Sel.Name != name {
		return false
	}
	x, ok := s.X.(*ast.Ident)
	return ok && x.Name == pkg
}

// TestSleepsAreFound: the rule can fail.
func TestSleepsAreFound(t *testing.T) {
	for src, want := range map[string]int{
		`func TestX(t *testing.T) { time.Sleep(1) }`:                                             1,
		`func TestX(t *testing.T) { for ; ; time.Sleep(1) { go func() { time.Sleep(2) }() } }`:   2,
		`func TestX(t *testing.T) { <-time.After(1) }`:                                           1,
		`func TestX(t *testing.T) { select { case <-c: time.Sleep(1); case <-time.After(1): } }`: 1,
		`func TestX(t *testing.T) { synctest.Test(t, func(t *testing.T) { time.Sleep(1) }) }`:    0,
	} {
		f, err := parseFile(token.NewFileSet(), "relay/x_test.go", []byte("package relay; "+src))
		if err != nil {
			t.Fatal(err)
		}
		if got := sleepsIn(f); len(got) != want || want > 0 && !strings.HasPrefix(got[0], "relay/x_test.go TestX") {
			t.Errorf("%s: %q, want %d", src, got, want)
		}
	}
}
