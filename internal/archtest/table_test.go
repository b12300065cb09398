package archtest

// module is the import path of the library; the other modules are below it.
const module = "github.com/penstock/penstock"

// edges are the packages that one may import, each with the reason. Packages of
// this repository are named by their folder, others by import path. The standard
// library is free, but for what doors_test.go says.
type edges map[string]string

// rule is one row: a package (its folder; the root is "."), and what it may
// import in its code and, on top of that, in its tests.
type rule struct {
	pkg   string
	code  edges
	tests edges
}

// Reasons that several rows share.
const (
	kernel   = "the only door to the kernel"
	probes   = "a kernel feature is asked for, never assumed"
	pooled   = "buffers and states come from a pool and go back to it"
	onePump  = "one pump, two waiters: both kinds of relay move bytes with the same machine"
	segments = "GSO runs and GRO super-packets are planned by pure functions"
	named    = "causes, paths and the like have names, and are found by them"
	public   = "the public surface of the library"
	measured = "what is measured"
	forTests = "pairs, peers and leak checks"

	exposition = "the formats of Prometheus, and which of them a scraper asks for"

	vocabular = "the vocabulary that stations share"
	station   = "app sees all stations, and only app does"
	longest   = "the longest matching prefix in a few nanoseconds; it has no dependencies of its own"
)

// table is the import graph. Library: leaves first.
var table = []rule{
	{pkg: ".", tests: edges{
		"relay":  "the example of the front page",
		"splice": "its counterpart for code that blocks",
	}},
	{pkg: "pool"},
	{pkg: "clienthello", tests: edges{
		"splice": "the example: what was read to choose an upstream goes on to it",
	}},
	{pkg: "internal/sys", code: edges{
		"golang.org/x/sys/unix": "numbers and structures of the kernel's ABI",
	}},
	{pkg: "internal/feature", code: edges{
		"internal/sys": "probes are system calls",
	}},
	{pkg: "internal/segment"},
	{pkg: "internal/enum"},
	{pkg: "internal/pump", code: edges{
		"internal/enum":    named,
		"internal/sys":     kernel,
		"internal/feature": probes,
		"pool":             pooled,
	}},
	{pkg: "splice", code: edges{
		"internal/enum":    named,
		"internal/pump":    onePump,
		"internal/sys":     kernel,
		"internal/feature": probes,
		"pool":             pooled,
	}},
	{pkg: "relay", code: edges{
		"internal/enum":    named,
		"internal/pump":    onePump,
		"internal/segment": segments,
		"internal/sys":     kernel,
		"internal/feature": probes,
		"pool":             pooled,
	}, tests: edges{
		"clienthello": "the example of a hook that sniffs",
	}},
	{pkg: "dgram", code: edges{
		"internal/segment": segments,
		"internal/sys":     kernel,
		"internal/feature": probes,
		"pool":             pooled,
	}},

	// For tests only: every package of the library may use it there (testsOfAll).
	{pkg: "internal/testnet", code: edges{
		"internal/feature": "a test that needs a feature says so",
	}},
	{pkg: "internal/testkernel", code: edges{
		"internal/sys": "it stands before the kernel, with faults and counters",
	}},
	{pkg: "internal/archtest"},

	// The daemon: main -> app -> stations -> vocabulary.
	{pkg: "cmd/penstock", code: edges{
		"cmd/penstock/internal/app": "main only starts it",
	}, tests: edges{
		"relay": "a listener that takes nobody in, so that its queue is full",
	}},
	{pkg: "cmd/penstock/internal/app", code: edges{
		"cmd/penstock/internal/spec":      vocabular,
		"cmd/penstock/internal/api":       vocabular,
		"cmd/penstock/internal/config":    station,
		"cmd/penstock/internal/console":   station,
		"cmd/penstock/internal/doctor":    station,
		"cmd/penstock/internal/admit":     station,
		"cmd/penstock/internal/route":     station,
		"cmd/penstock/internal/upstream":  station,
		"cmd/penstock/internal/account":   station,
		"cmd/penstock/internal/admin":     station,
		"cmd/penstock/internal/dashboard": station,
		"cmd/penstock/internal/systemd":   "the service manager's side of its life",
		"clienthello":                     public,
		"relay":                           public,
		"github.com/alecthomas/kong":      "the command line; it has no dependencies of its own",
		"github.com/fsnotify/fsnotify":    "changes of the configuration file; it needs x/sys only",
	}},
	{pkg: "cmd/penstock/internal/admit", code: edges{
		"cmd/penstock/internal/spec":     vocabular,
		"github.com/gaissmai/bart":       longest,
		"github.com/pires/go-proxyproto": "the codec of PROXY headers that many others read with",
		"golang.org/x/time/rate":         "token buckets of all and of a listener",
	}},
	{pkg: "cmd/penstock/internal/route", code: edges{
		"cmd/penstock/internal/spec": vocabular,
		"github.com/gaissmai/bart":   longest,
	}},
	{pkg: "cmd/penstock/internal/config", code: edges{
		"cmd/penstock/internal/spec":             vocabular,
		"go.yaml.in/yaml/v4":                     "YAML with positions; it has no dependencies of its own",
		"go.yaml.in/yaml/v4/plugin/loaderlimits": "its bound of nesting",
	}, tests: edges{
		"github.com/santhosh-tekuri/jsonschema/v6": "the schema as another program reads it",
	}},
	{pkg: "cmd/penstock/internal/upstream", code: edges{
		"cmd/penstock/internal/spec":      vocabular,
		"relay":                           public,
		"github.com/cespare/xxhash/v2":    "a hash that is the same in every process, so that relays side by side agree; no dependencies",
		"golang.org/x/net/dns/dnsmessage": "package net keeps the TTL to itself",
	}},
	{pkg: "cmd/penstock/internal/account", code: edges{
		"cmd/penstock/internal/spec": vocabular,
		"relay":                      public,
	}},
	{pkg: "cmd/penstock/internal/systemd", code: edges{
		"github.com/coreos/go-systemd/v22/activation": "LISTEN_FDS and its rules; it depends on the standard library only",
		"github.com/coreos/go-systemd/v22/daemon":     "sd_notify, the watchdog's interval, and CLOCK_MONOTONIC without a system call of ours",
	}},
	{pkg: "cmd/penstock/internal/dashboard", tests: edges{
		"relay":                                 "networks of made-up addresses",
		"cmd/penstock/internal/admin":           "the page is tested where it is served",
		"cmd/penstock/internal/api":             "what the page shows is compared with what the API says",
		"cmd/penstock/internal/spec":            "an admin listener is bound at an endpoint",
		"github.com/chromedp/chromedp":          "drives a headless Chromium",
		"github.com/chromedp/chromedp/kb":       "names of keys",
		"github.com/chromedp/cdproto/cdp":       "what a browser is told and tells",
		"github.com/chromedp/cdproto/emulation": "as for cdp",
		"github.com/chromedp/cdproto/input":     "as for cdp",
		"github.com/chromedp/cdproto/log":       "as for cdp",
		"github.com/chromedp/cdproto/network":   "as for cdp",
		"github.com/chromedp/cdproto/runtime":   "as for cdp",
	}},
	{pkg: "cmd/penstock/internal/admin", code: edges{
		"cmd/penstock/internal/spec":                                vocabular,
		"cmd/penstock/internal/api":                                 vocabular,
		"github.com/prometheus/client_golang/prometheus":            "the registry of what client_golang collects itself",
		"github.com/prometheus/client_golang/prometheus/collectors": "metrics of the Go runtime and of the process",
		"github.com/prometheus/common/expfmt":                       exposition,
		"github.com/prometheus/common/model":                        "expfmt takes the rule for escaping names from it",
		"github.com/prometheus/client_model/go":                     "families are given to the encoder as it takes them: a registry would hash and sort every series in every scrape",
	}, tests: edges{
		"relay": "networks of made-up addresses",
		"github.com/prometheus/client_golang/prometheus/testutil/promlint": "names follow the conventions of Prometheus",
		"go.yaml.in/yaml/v4":                       "the API's description is YAML",
		"github.com/santhosh-tekuri/jsonschema/v6": "real answers are checked against the schemas of the description",
	}},
	{pkg: "cmd/penstock/internal/console", code: edges{
		"cmd/penstock/internal/api":       vocabular,
		"charm.land/bubbletea/v2":         "the live view: keys, resizing, and only the cells that changed are written, as ssh wants it",
		"charm.land/lipgloss/v2":          "styles for it, which bubbletea turns into what the terminal and NO_COLOR allow",
		"github.com/charmbracelet/x/term": "whether somebody reads at a terminal, and how wide it is",
	}, tests: edges{
		"relay":                           "networks of made-up addresses",
		"cmd/penstock/internal/admin":     "commands are asked of the real server",
		"cmd/penstock/internal/spec":      "where that listens",
		"github.com/alecthomas/kong":      "command lines are parsed as app does it",
		"github.com/creack/pty":           "the live view is used at a real terminal",
		"github.com/charmbracelet/x/ansi": "how wide a line is on a terminal",
	}},
	{pkg: "cmd/penstock/internal/doctor", code: edges{
		"dgram":                           "what it measures",
		"splice":                          "what it measures",
		"golang.org/x/sys/unix":           "it asks the kernel by trying, for what the library has no need of too",
		"github.com/safchain/ethtool":     "features of network devices; it needs x/sys only",
		"github.com/charmbracelet/x/term": "whether somebody reads at a terminal",
	}, tests: edges{
		"github.com/alecthomas/kong": "command lines are parsed as app does it",
	}},
	{pkg: "cmd/penstock/internal/spec"},
	{pkg: "cmd/penstock/internal/api", code: edges{
		"relay": "an address and its URL are the library's",
	}},
}

// testsOfAll is what tests of each module may import beside their package's own
// edges.
var testsOfAll = map[string]edges{
	".": {
		"internal/testnet":    forTests,
		"internal/testkernel": "a kernel that counts and fails",
	},
	"cmd/penstock": {
		"internal/testnet":               forTests,
		"cmd/penstock/internal/api":      "tests ask the running daemon as its operators do",
		"github.com/pires/go-proxyproto": "other proxies' headers, in front and behind",
	},
	"bench": {"internal/testnet": forTests},
	"xnet":  {"internal/testnet": forTests, "relay": "a QUIC transfer with the engine between"},
}

// freeModules are nested modules whose packages may import each other, and of
// the repository nothing but what is named. Others' modules are free for them.
var freeModules = map[string]edges{
	"bench": {
		"pool":   measured,
		"dgram":  measured,
		"splice": measured,
		"relay":  measured,
		"xnet":   measured,
	},
	"xnet": {
		"dgram": "the batch API of x/net stands on it",
		"pool":  pooled,
	},
}

// vocabulary is what stations of the daemon may share; app sees all.
var vocabulary = []string{"cmd/penstock/internal/spec", "cmd/penstock/internal/api"}

// library tells the packages of module 1 from those of the nested modules.
var nested = []string{"cmd/penstock", "bench", "xnet"}
