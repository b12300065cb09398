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
const mostSleeps = 65

// sleeps are the places at which tests sleep on the real clock, by file and function, with the number of calls of time.Sleep there. Whoever
// waits for something waits for the event or with package testwait; a test of package relay lets time pass on the engine's clock (rig.pass);
// a test in testing/synctest may sleep as it likes, and is not listed.
var sleeps = map[string]struct {
	n   int
	why string
}{
	"bench/internal/child/child_test.go a variable":                          {1, "what the child is told to do: to take long"},
	"bench/internal/proc/proc_test.go TestIdle":                              {1, "measures the idle time of the CPUs"},
	"bench/internal/world/load_test.go TestFaultsAreFound":                   {1, "a load without faults has no end of its own: to be counted in flows"},
	"bench/pool/pool_test.go benchExpensiveNew":                              {1, "a benchmark: cleanups of the runtime have run"},
	"bench/pool/pool_test.go new":                                            {1, "a benchmark: what is expensive to make"},
	"cmd/penstock/churn_test.go TestMembersChurn":                            {1, "the pace of reloads under load"},
	"cmd/penstock/descriptors_test.go TestFewDescriptorsAndASlowUpstream":    {1, "a limit of a whole daemon, a second: not settable"},
	"cmd/penstock/internal/account/kept_linux_test.go killWhileCounting":     {1, "a kill at a random moment"},
	"cmd/penstock/internal/admin/connlimit_test.go TestKnownConnectionsStay": {1, "a limit of real connections of net/http: to become a bubble"},
	"cmd/penstock/internal/ads/refusals_test.go TestSilentIsNotSlow":         {1, "a time-out of real HTTP/2 connections: to become a bubble"},
	"cmd/penstock/internal/app/reload_test.go TestReloadsKeepTheirOrder":     {1, "the first of several takes longest: to become a channel"},
	"cmd/penstock/internal/dashboard/pictures_test.go TestPictures":          {1, "a tool: charts of a browser have redrawn"},
	"cmd/penstock/internal/dashboard/readme_test.go TestReadmePicture":       {3, "a tool: the load of the picture"},
	"cmd/penstock/internal/dashboard/readme_test.go answerStreams":           {1, "a tool: the load of the picture"},
	"cmd/penstock/internal/dashboard/readme_test.go exchange":                {1, "a tool: the load of the picture"},
	"cmd/penstock/internal/discover/slow_test.go TestSlowServers":            {1, "a server that drips: its pace"},
	"cmd/penstock/internal/etcd/faults_test.go TestTokens":                   {1, "the life of a token of a real etcd"},
	"cmd/penstock/internal/fleet/scale_test.go TestScale":                    {3, "a measurement, off by default"},
	"cmd/penstock/internal/testfleet/proxy.go copy":                          {1, "a slow network, as tests ask for it"},
	"cmd/penstock/internal/upstream/dns_test.go TestMissingNames":            {1, "time-outs of a real resolver: to become a bubble"},
	"cmd/penstock/internal/upstream/fleet_bench_test.go BenchmarkFleet":      {2, "a benchmark: the pace of its load"},
	"cmd/penstock/internal/upstream/probe_tls_test.go TestProbeAttacks":      {1, "a server that drips: its pace"},
	"cmd/penstock/logs_test.go TestLogFlooded":                               {1, "the pace of a load: datagrams would be lost"},
	"cmd/penstock/outlive_state_test.go TestStateOutlivesWorker":             {1, "state is written each second: to become a wait for the file"},
	"cmd/penstock/outlive_steps_test.go TestKeeperDiesDuringUpgrade":         {1, "a kill at several moments"},
	"cmd/penstock/overload_test.go checksummed":                              {1, "the pace of a load"},
	"dgram/errors_test.go TestDeadlineAndClose":                              {2, "a read has begun to wait in the kernel: nothing tells of that"},
	"dgram/metadata_linux_test.go TestTime":                                  {1, "time stamps of the real kernel"},
	"internal/ledger/steps_linux_amd64_test.go stepsChild":                   {1, "a process that waits to be killed"},
	"internal/pump/half_linux_test.go TestEndWithBytesInThePipe":             {1, "an end behind bytes has arrived: to become a look at TCP_INFO"},
	"internal/pump/half_linux_test.go TestSlowReader":                        {1, "a turn moves nothing several times in a row: to become a script of the simulated kernel"},
	"internal/pump/urgent_linux_test.go TestUrgent":                          {1, "urgent data has arrived: to become a script of the simulated kernel"},
	"internal/testnet/peer.go servePeer":                                     {1, "a peer without descriptors does not spin"},
	"keeper/item_linux_test.go TestHoldConn":                                 {1, "a send has begun to wait in the kernel: nothing tells of that"},
	"keeper/life_linux_test.go TestRandomKills":                              {1, "a kill at a random moment"},
	"keeper/rig_linux_test.go runTestWorker":                                 {1, "a worker says periodically that it is alive"},
	"keeper/upgrade_linux_test.go TestUpgradeWhileKeeperIsReplaced":          {1, "a signal at several moments"},
	"keeper/upgrade_linux_test.go TestWorkerDiesWhileKeeperIsReplaced":       {1, "a kill at several moments"},
	"pool/concurrent_test.go testExactlyOnce":                                {1, "the pace of collections under load"},
	"relay/datagram_keep_linux_test.go TestDatagramLoadOutlivesKills":        {1, "a kill at a random moment"},
	"relay/datagram_shared_linux_test.go quiet":                              {1, "counts events of a while without work: to become a script of the simulated kernel"},
	"relay/engine_flows_linux_test.go BenchmarkFlows":                        {2, "a benchmark: its flows are set up, and the pace of its load"},
	"relay/engine_overload_linux_test.go TestShedIdle":                       {1, "no two flows are equally idle by the clock of the kernel"},
	"relay/example_linux_test.go ExampleFlowRef_Resume":                      {1, "an example: a lookup that takes a while"},
	"relay/flow_bandwidth_linux_test.go TestBandwidthRests":                  {1, "counts waits of a while: to become a script of the simulated kernel"},
	"relay/gap_linux_test.go gap":                                            {1, "a process that is stopped for longer than a time-out"},
	"relay/kept_stream_linux_test.go TestResetOutlivesProcess":               {1, "a kill at a random moment"},
	"relay/lastcall_linux_test.go receive":                                   {1, "a slow reader: its pace"},
	"relay/stw_linux_test.go benchmarkSTW":                                   {2, "a benchmark: the pace of its load"},
	"relay/timers_linux_test.go TestIdleLoopsSleep":                          {1, "counts waits of a while: to become a script of the simulated kernel"},
	"relay/urgent_linux_test.go TestUrgent":                                  {1, "a reader that begins late: to become a script of the simulated kernel"},
	"splice/close_test.go TestNoDeadlines":                                   {1, "what a copier that was left behind would count"},
	"splice/copy_test.go TestEndBehindPipe":                                  {1, "an end has arrived behind bytes that nobody takes"},
	"splice/differential_test.go prod":                                       {1, "the pace of a writer, in a story that io.Copy is told, too"},
	"splice/differential_test.go story":                                      {1, "a turn of io.Copy has ended: nothing tells of that"},
	"splice/example_test.go ExampleConfig_RelayLive":                         {1, "an example"},
	"splice/rig_test.go fillUp":                                              {1, "a reader takes nothing for longer than TCP delays its window"},
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
