package archtest

// module is the import path of the library; the other modules are below it.
const module = "github.com/penstock/penstock"

// edges are the packages that a package may import, each with the reason. Packages of this
// repository are named by their folder, others by import path. The standard library may be imported
// freely, except for what doors_test.go restricts.
type edges map[string]string

// rule is one row: a package (its folder; the root is "."), and what it may import in its code and
// additionally in its tests.
type rule struct {
	pkg   string
	code  edges
	tests edges
}

// Reasons that several rows share.
const (
	kernel   = "system calls"
	probes   = "kernel features are probed, never assumed"
	pooled   = "buffers and state are pooled"
	onePump  = "both kinds of relay move bytes with the same pump"
	segments = "planning GSO runs and splitting GRO super-packets"
	named    = "names of causes, paths and the like, as text and back"
	public   = "the public API of the library"
	measured = "it is measured"
	forTests = "socket pairs, peers and leak checks"
	waits    = "the one way in which tests wait for a condition"

	wire         = "the encoding of protobuf without generated types, which would be megabytes; other dependencies have it anyway"
	readers      = "the plan that a reader fills, and how it is written"
	valid        = "whatever is converted is a valid configuration"
	completeness = "nothing of an original is left out without a word"

	exposition = "the formats of Prometheus, and negotiation with scrapers"
	telemetry  = "the messages of OTLP, as their project generates them without gRPC: 0.2 MB"

	shared       = "the shared types of the daemon"
	clients      = "HTTP, credentials and back-off, as all clients of registries"
	certificates = "tests make certificates"
	assembled    = "app assembles the daemon, and only app imports all of its packages"
	longest      = "longest prefix match in a few nanoseconds; it has no dependencies of its own"
)

// table is the import graph. The library comes first, leaves before the packages that import them.
var table = []rule{
	{pkg: ".", tests: edges{
		"relay":  "the example of the front page",
		"splice": "its counterpart for blocking code",
	}},
	{pkg: "pool"},
	{pkg: "clienthello", tests: edges{
		"splice": "the example: what was read to choose an upstream is passed on to it",
	}},
	{pkg: "quichello", code: edges{
		"clienthello": "QUIC carries the same ClientHello, in packets of its own",
	}},
	{pkg: "internal/sys", code: edges{
		"golang.org/x/sys/unix": "constants and structures of the kernel's ABI",
		"golang.org/x/sys/cpu":  "the machine's byte order, as a constant",
	}},
	{pkg: "internal/feature", code: edges{
		"internal/sys": "probes are system calls",
	}},
	{pkg: "internal/segment"},
	{pkg: "internal/enum"},
	{pkg: "datapath", code: edges{
		"internal/enum": named,
	}},
	{pkg: "internal/ledger", code: edges{
		"internal/sys": kernel,
	}},
	{pkg: "internal/flood", code: edges{
		"internal/sys": "addresses of clients as the kernel wrote them",
	}},
	{pkg: "internal/loop", code: edges{
		"internal/sys": kernel,
	}},
	{pkg: "internal/pump", code: edges{
		"datapath":         "how bytes move, in the words that both kinds of relay report",
		"internal/ledger":  "a half notes what it has in its hands, for the next process",
		"internal/sys":     kernel,
		"internal/feature": probes,
	}, tests: edges{
		"pool": pooled,
	}},
	{pkg: "splice", code: edges{
		"datapath":         "how bytes move, in the words that both kinds of relay report",
		"internal/enum":    named,
		"internal/pump":    onePump,
		"internal/sys":     kernel,
		"internal/feature": probes,
		"pool":             pooled,
	}},
	{pkg: "internal/tlsconn", code: edges{
		"internal/sys": kernel,
		"pool":         pooled,
	}, tests: edges{
		"internal/simkernel": "the records of kTLS, which few hosts have",
	}},
	{pkg: "relay/overload", tests: edges{
		"relay": "the example: an engine that is short of memory",
	}},
	{pkg: "relay/origin"},
	{pkg: "relay/stats", code: edges{
		"internal/enum": named,
		"pool":          "counters of buffers",
	}},
	{pkg: "relay/hold", code: edges{
		"internal/enum":    named,
		"internal/feature": "whether the kernel has TLS",
		"internal/tlsconn": "what marks the connections that the kernel gets",
		"internal/ledger":  "whether this version can read what was held",
		"relay/stats":      "how many flows were lost, by reason",
	}},
	{pkg: "relay", code: edges{
		"datapath":         "how bytes move, in the words that both kinds of relay report",
		"relay/hold":       "what its owner gives it for flows that outlive the process, which may change",
		"relay/origin":     "who its proxies are, and how their headers are read, which may change",
		"relay/stats":      "what it has counted, as its callers see it, which may change",
		"relay/overload":   "what steers it while memory is short, which may change",
		"internal/flood":   "which new clients of datagram listeners begin flows",
		"internal/enum":    named,
		"internal/ledger":  "what the next process needs to go on",
		"internal/loop":    "the event loops that its flows are on",
		"internal/pump":    onePump,
		"internal/segment": segments,
		"internal/sys":     kernel,
		"internal/tlsconn": "one end of a TLS connection that never waits",
		"internal/feature": probes,
		"pool":             pooled,
	}, tests: edges{
		"clienthello": "the example of a hook that sniffs",
		"quichello":   "the example of a hook that sniffs datagrams",
		"keeper":      "the keeper of the simulation is the real one",
	}},
	{pkg: "dgram", code: edges{
		"internal/segment": segments,
		"internal/sys":     kernel,
		"internal/feature": probes,
		"pool":             pooled,
	}},
	{pkg: "keeper", code: edges{
		"internal/sys": kernel,
	}, tests: edges{
		"relay/hold": "the same: what it holds",
		"relay":      "the example: an engine whose flows outlive the process",
	}},

	{pkg: "sandbox", code: edges{
		"internal/sys": kernel,
	}, tests: edges{
		"internal/testattack": "what must be refused",
	}},

	// For tests only: the tests of every package of the library may use these (testsOfAll).
	{pkg: "internal/testwait"},
	{pkg: "internal/testport", tests: edges{
		"internal/testnet": forTests,
	}},
	{pkg: "internal/testnet", code: edges{
		"internal/testport": "a test's addresses are its own",
		"internal/testwait": waits,
		"internal/feature":  "tests declare the kernel features that they need",
		"internal/sys":      "datagrams with the TOS bytes that a test chooses and sees",
	}},
	{pkg: "internal/testkernel", code: edges{
		"internal/sys":          "it replaces system calls by ones that fail and count",
		"golang.org/x/sys/unix": "the numbers of the system calls that another process makes",
	}},
	{pkg: "internal/simkernel", code: edges{
		"internal/sys": "it stands in for the kernel",
	}, tests: edges{
		"internal/feature": "kTLS is compared where there is kTLS",
	}},
	{pkg: "internal/testcost"},
	{pkg: "internal/testattack", code: edges{
		"golang.org/x/sys/unix": "the numbers of system calls",
	}},
	{pkg: "internal/archtest"},

	// The daemon: main -> app -> the other packages -> shared types.
	{pkg: "cmd/penstock", code: edges{
		"cmd/penstock/internal/app": "main starts it",
	}, tests: edges{
		"relay":                                                    "a listener that accepts nobody, so that its queue is full",
		"quichello":                                                "how many datagrams the ClientHello of a browser takes",
		"cmd/penstock/internal/testbrowser":                        "a browser gets files through the daemon",
		"github.com/chromedp/chromedp":                             "drives that browser",
		"github.com/quic-go/quic-go/http3":                         "the server of a browser",
		"cmd/penstock/internal/etcd":                               "members are registered as services do it",
		"cmd/penstock/internal/testcerts":                          certificates,
		"cmd/penstock/internal/ja4":                                "the fingerprint of what a member gets",
		"clienthello":                                              public,
		"github.com/pires/go-proxyproto/tlvparse":                  "TLVs about TLS as another implementation reads them",
		"go.opentelemetry.io/proto/slim/otlp/collector/logs/v1":    "what a collector gets",
		"go.opentelemetry.io/proto/slim/otlp/collector/metrics/v1": "what a collector gets",
		"google.golang.org/protobuf/proto":                         "what a collector gets",
		"cmd/penstock/internal/remote":                             "where the registry is",
		"github.com/creack/pty":                                    "the greeting is tested at a real terminal",
	}},
	{pkg: "cmd/penstock/internal/earlykeeper", code: edges{
		"keeper":                "it runs one; anything more would be initialised first, and cost the keeper memory",
		"golang.org/x/sys/unix": "it opens files for workers; package keeper has it in the process anyway",
	}},
	{pkg: "cmd/penstock/dist"},
	{pkg: "cmd/penstock/scale", code: edges{
		"cmd/penstock/internal/spec":   shared,
		"cmd/penstock/internal/remote": clients,
		"cmd/penstock/internal/etcd":   "relays without an engine, which are what the daemon does with etcd",
		"cmd/penstock/internal/fleet":  "the same: versions and reports; and it publishes",
		"cmd/penstock/internal/xds":    "what the daemon does with a control plane",
	}},
	{pkg: "cmd/penstock/internal/app", code: edges{
		"cmd/penstock/internal/saved":           "bans, on disk for the next start",
		"cmd/penstock/internal/lists":           assembled,
		"datapath":                              public,
		"relay/hold":                            public,
		"relay/stats":                           public,
		"cmd/penstock/internal/account":         assembled,
		"cmd/penstock/internal/quicid":          "IDs of servers that operators give to members",
		"cmd/penstock/internal/admin":           assembled,
		"cmd/penstock/internal/otlp":            assembled,
		"github.com/prometheus/client_model/go": "metrics of the service and of the process, on their way to a collector",
		"cmd/penstock/internal/admit":           assembled,
		"cmd/penstock/internal/api":             shared,
		"cmd/penstock/internal/budget":          assembled,
		"cmd/penstock/internal/certs":           assembled,
		"cmd/penstock/internal/cli":             assembled,
		"cmd/penstock/internal/config":          assembled,
		"cmd/penstock/internal/sandboxneeds":    assembled,
		"cmd/penstock/internal/console":         assembled,
		"cmd/penstock/internal/cycle":           assembled,
		"cmd/penstock/internal/destination":     assembled,
		"cmd/penstock/internal/dashboard":       assembled,
		"cmd/penstock/internal/discover":        assembled,
		"cmd/penstock/internal/doctor":          assembled,
		"cmd/penstock/internal/earlykeeper":     "the settings of the keeper, which app gives to it",
		"cmd/penstock/internal/etcd":            "the client of a fleet, which several parts share",
		"cmd/penstock/internal/fleet":           assembled,
		"cmd/penstock/internal/hooks":           assembled,
		"cmd/penstock/internal/host":            assembled,
		"cmd/penstock/internal/keeping":         assembled,
		"cmd/penstock/internal/logs":            assembled,
		"cmd/penstock/internal/offline":         assembled,
		"cmd/penstock/internal/remote":          "where registries are, and what their clients share",
		"cmd/penstock/internal/liveflows":       assembled,
		"cmd/penstock/internal/rules":           assembled,
		"cmd/penstock/internal/sandboxed":       assembled,
		"cmd/penstock/internal/sources":         assembled,
		"cmd/penstock/internal/spec":            shared,
		"cmd/penstock/internal/systemd":         "notifications to the service manager, and its sockets",
		"cmd/penstock/internal/upstream":        assembled,
		"cmd/penstock/internal/xds":             assembled,
		"keeper":                                public,
		"relay":                                 public,
		"sandbox":                               public,
		"github.com/alecthomas/kong":            "the command line; it has no dependencies of its own",
	}, tests: edges{
		"internal/testattack": "in binaries for tests, the worker attacks from inside",
	}},
	{pkg: "cmd/penstock/internal/destination", code: edges{
		"cmd/penstock/internal/spec": shared,
	}},
	{pkg: "cmd/penstock/internal/host", code: edges{
		"cmd/penstock/internal/spec": shared,
		"relay":                      "networks of addresses",
		"golang.org/x/sys/unix":      "files in memory, pages of the program, and sockets of others",
	}},
	{pkg: "cmd/penstock/internal/logs", code: edges{
		"cmd/penstock/internal/spec":    shared,
		"cmd/penstock/internal/console": "how wide a terminal is, and what may be written to it",
	}},
	{pkg: "cmd/penstock/internal/cycle", code: edges{
		"cmd/penstock/internal/spec": shared,
		"relay":                      "addresses",
	}},
	{pkg: "cmd/penstock/internal/rules", code: edges{
		"cmd/penstock/internal/lists":   "whether lists of networks can be read",
		"cmd/penstock/internal/spec":    shared,
		"cmd/penstock/internal/config":  "it reports what it finds at the place where a key is written",
		"cmd/penstock/internal/account": "what an access log may be",
		"cmd/penstock/internal/certs":   "whether certificates and keys can be used",
		"cmd/penstock/internal/cycle":   "members that lead back to their listener",
	}},
	{pkg: "cmd/penstock/internal/sources", code: edges{
		"cmd/penstock/internal/spec":   shared,
		"cmd/penstock/internal/api":    shared,
		"cmd/penstock/internal/config": "it has the text that the configuration is read from",
		"cmd/penstock/internal/remote": clients,
		"cmd/penstock/internal/etcd":   "a text in etcd",
		"cmd/penstock/internal/fleet":  "which version of it this relay is to run",
		"cmd/penstock/internal/xds":    "a text of a control plane",
		"github.com/fsnotify/fsnotify": "changes of the configuration's files; it needs x/sys only",
		"cmd/penstock/internal/saved":  "a file is written as a whole",
	}},
	{pkg: "cmd/penstock/internal/saved", code: edges{
		"cmd/penstock/internal/counts": shared,
		"relay/stats":                  "counters of the engine that are not in memory that outlives the process",
	}},
	{pkg: "cmd/penstock/internal/cli", code: edges{
		"cmd/penstock/internal/spec": shared,
	}},
	{pkg: "cmd/penstock/internal/offline", code: edges{
		"cmd/penstock/internal/lists":           "explain looks clients up in lists",
		"cmd/penstock/internal/cli":             "exit codes and flags",
		"cmd/penstock/internal/spec":            shared,
		"cmd/penstock/internal/api":             shared,
		"cmd/penstock/internal/config":          "check and explain read configurations",
		"cmd/penstock/internal/rules":           "and say what is wrong with them",
		"cmd/penstock/internal/cycle":           "what is published must not lead back to a listener, whatever the host",
		"cmd/penstock/internal/sources":         "a configuration may be in a registry",
		"cmd/penstock/internal/console":         "what may be written to a terminal",
		"cmd/penstock/internal/convert":         "the command convert",
		"cmd/penstock/internal/convert/haproxy": "the same: configurations of HAProxy",
		"cmd/penstock/internal/convert/nginx":   "the same: those of nginx",
		"cmd/penstock/internal/manual":          "the commands manual and completion",
		"cmd/penstock/internal/firstbytes":      "explain: what a client sends first",
		"cmd/penstock/internal/quicid":          "explain reads connection IDs",
		"cmd/penstock/internal/route":           "explain asks for the route as the daemon does",
		"cmd/penstock/internal/certs":           "explain: the names in a client's certificate",
		"cmd/penstock/internal/upstream":        "explain looks names up as the daemon does",
		"cmd/penstock/internal/destination":     "and says which are refused",
		"cmd/penstock/internal/etcd":            "publish, rollback and history: the client of a fleet",
		"cmd/penstock/internal/remote":          "the same: where its registry is",
		"cmd/penstock/internal/fleet":           "the same: what is done there",
		"quichello":                             "explain reads a client's first datagrams",
		"relay":                                 "addresses, and causes by name",
		"github.com/alecthomas/kong":            "the grammar that pages and completion are made from",
	}},
	{pkg: "cmd/penstock/internal/hooks", code: edges{
		"cmd/penstock/internal/lists":        "the lists of routes",
		"relay/origin":                       "which senders of datagrams are proxies",
		"relay/hold":                         "what hooks know of a flow goes to the next worker",
		"cmd/penstock/internal/spec":         shared,
		"cmd/penstock/internal/logs":         "the daemon's own log has a line for each flow, if it is asked for",
		"cmd/penstock/internal/account":      "each flow is counted and recorded",
		"cmd/penstock/internal/admit":        "who is admitted",
		"cmd/penstock/internal/certs":        "TLS at both ends",
		"cmd/penstock/internal/sandboxneeds": "errors that are the sandbox's say so",
		"cmd/penstock/internal/cycle":        "members that lead back get no flows",
		"cmd/penstock/internal/starttls":     "how TLS begins",
		"cmd/penstock/internal/firstbytes":   "what else clients begin with",
		"cmd/penstock/internal/ja4":          "fingerprints of clients",
		"cmd/penstock/internal/quicid":       "connections of clients that have moved",
		"cmd/penstock/internal/route":        "where a flow goes",
		"cmd/penstock/internal/saved":        "counts that the next worker goes on with",
		"cmd/penstock/internal/upstream":     "members",
		"cmd/penstock/internal/destination":  "hosts that clients name",
		"clienthello":                        public,
		"quichello":                          public,
		"relay":                              public,
	}, tests: edges{
		"cmd/penstock/internal/counts": "what outlives a reload is counted somewhere",
	}},
	{pkg: "cmd/penstock/internal/liveflows", code: edges{
		"cmd/penstock/internal/spec":     shared,
		"cmd/penstock/internal/hooks":    "what the daemon knows of a flow",
		"cmd/penstock/internal/upstream": "members that were removed, and those that are down",
		"relay":                          public,
		"relay/stats":                    public,
	}},
	{pkg: "cmd/penstock/internal/keeping", code: edges{
		"cmd/penstock/internal/lists":        "bans, as the next worker gets them",
		"relay":                              public,
		"relay/stats":                        public,
		"cmd/penstock/internal/spec":         shared,
		"cmd/penstock/internal/api":          shared,
		"cmd/penstock/internal/counts":       shared,
		"cmd/penstock/internal/saved":        "documents and values",
		"cmd/penstock/internal/config":       "the configuration of the worker before is read as any",
		"cmd/penstock/internal/rules":        "and checked",
		"cmd/penstock/internal/account":      "what flows have moved goes on",
		"cmd/penstock/internal/upstream":     "so does what is known of members",
		"cmd/penstock/internal/admit":        "so do the rates of clients",
		"cmd/penstock/internal/admin":        "so do the sockets of the admin listener",
		"cmd/penstock/internal/systemd":      "the state goes to the service manager by way of the keeper",
		"cmd/penstock/internal/earlykeeper":  "the settings of the keeper, and what it may be asked for",
		"cmd/penstock/internal/sandboxneeds": "a worker may enter the sandbox of the one before",
		"cmd/penstock/internal/host":         "files in memory, and becoming the keeper",
		"cmd/penstock/internal/logs":         "whether a person watches, as the keeper's log has it then",
		"sandbox":                            public,
		"keeper":                             public,
		"relay/hold":                         public,
	}},
	{pkg: "cmd/penstock/internal/sandboxed", code: edges{
		"cmd/penstock/internal/spec":         shared,
		"cmd/penstock/internal/api":          shared,
		"cmd/penstock/internal/account":      "the mode of an access log, which the keeper may open",
		"cmd/penstock/internal/config":       "the files that the configuration is read from",
		"cmd/penstock/internal/sandboxneeds": "what a configuration needs",
		"cmd/penstock/internal/discover":     "the credentials of registries",
		"cmd/penstock/internal/earlykeeper":  "what the keeper is told",
		"cmd/penstock/internal/host":         "what this kernel and this process are",
		"cmd/penstock/internal/keeping":      "the way to the keeper, and the sandbox of the worker before",
		"cmd/penstock/internal/systemd":      "inherited sockets need nothing",
		"keeper":                             public,
		"sandbox":                            public,
	}},
	{pkg: "cmd/penstock/internal/admit", code: edges{
		"cmd/penstock/internal/lists":    "networks that are lists",
		"cmd/penstock/internal/spec":     shared,
		"relay":                          "PROXY headers are written as the library writes them",
		"relay/origin":                   "headers of datagrams are read for the engine",
		"github.com/pires/go-proxyproto": "a widely used codec of PROXY headers",
		"golang.org/x/time/rate":         "token buckets for the daemon and for each listener",
	}, tests: edges{
		"github.com/pires/go-proxyproto/tlvparse": "TLVs about TLS as another implementation reads them",
	}},
	{pkg: "cmd/penstock/internal/budget", code: edges{
		"relay/overload": "it has the engine shed load",
	}},
	{pkg: "cmd/penstock/internal/lists", code: edges{
		"cmd/penstock/internal/spec":   shared,
		"cmd/penstock/internal/etcd":   "lists that are keys of etcd",
		"cmd/penstock/internal/remote": clients,
		"github.com/gaissmai/bart":     longest,
	}},
	{pkg: "cmd/penstock/internal/firstbytes", code: edges{
		"cmd/penstock/internal/spec":     shared,
		"cmd/penstock/internal/starttls": "how PostgreSQL begins",
	}},
	{pkg: "cmd/penstock/internal/ja4", tests: edges{
		"clienthello": "what it reads has a fingerprint",
	}},
	{pkg: "cmd/penstock/internal/quicid", code: edges{
		"cmd/penstock/internal/spec": shared,
		"quichello":                  "which versions there are",
	}},
	{pkg: "cmd/penstock/internal/route", code: edges{
		"cmd/penstock/internal/firstbytes": "conditions on what a client sends first",
		"cmd/penstock/internal/lists":      "networks that are lists",
		"cmd/penstock/internal/spec":       shared,
		"github.com/gaissmai/bart":         longest,
	}},
	{pkg: "cmd/penstock/internal/config", code: edges{
		"cmd/penstock/internal/quicid":           "which layouts of connection IDs there are",
		"cmd/penstock/internal/spec":             shared,
		"go.yaml.in/yaml/v4":                     "YAML with line and column; it has no dependencies of its own",
		"go.yaml.in/yaml/v4/plugin/loaderlimits": "its limit on nesting",
	}, tests: edges{
		"github.com/santhosh-tekuri/jsonschema/v6": "the schema as other programs read it",
	}},
	{pkg: "cmd/penstock/internal/manual", code: edges{
		"github.com/alecthomas/kong": "the grammar that pages and completion are made from",
	}},
	{pkg: "cmd/penstock/internal/convert", code: edges{
		"cmd/penstock/internal/spec":       shared,
		"cmd/penstock/internal/firstbytes": "whether clients of a protocol may begin with the bytes of another condition",
	}, tests: edges{
		"cmd/penstock/internal/config":          valid,
		"cmd/penstock/internal/convert/haproxy": "what holds for all readers alike",
		"cmd/penstock/internal/convert/nginx":   "as for haproxy",
		"cmd/penstock/internal/testconvert":     completeness,
	}},
	{pkg: "cmd/penstock/internal/convert/haproxy", code: edges{
		"cmd/penstock/internal/spec":    shared,
		"cmd/penstock/internal/convert": readers,
	}, tests: edges{
		"cmd/penstock/internal/testconvert": completeness,
	}},
	{pkg: "cmd/penstock/internal/convert/nginx", code: edges{
		"cmd/penstock/internal/spec":    shared,
		"cmd/penstock/internal/convert": readers,
	}, tests: edges{
		"cmd/penstock/internal/testconvert": completeness,
	}},
	{pkg: "cmd/penstock/internal/testconvert", code: edges{
		"cmd/penstock/internal/spec":    shared,
		"cmd/penstock/internal/config":  valid,
		"cmd/penstock/internal/convert": "what it tests the readers of",
	}},
	{pkg: "cmd/penstock/internal/certs", code: edges{
		"cmd/penstock/internal/spec": shared,
		"relay/hold":                 "connections that the kernel gets, if it has TLS",
		"relay":                      public,
		"golang.org/x/crypto/ocsp":   "responses are checked before they are sent",
	}, tests: edges{
		"cmd/penstock/internal/testcerts": certificates,
	}},
	{pkg: "cmd/penstock/internal/starttls", code: edges{
		"cmd/penstock/internal/spec": shared,
		"relay":                      public,
	}},
	{pkg: "cmd/penstock/internal/testcerts"},
	{pkg: "cmd/penstock/internal/upstream", code: edges{
		"cmd/penstock/internal/certs":     "checks speak TLS as flows do, and tell in the same words what is wrong",
		"cmd/penstock/internal/starttls":  "checks ask for TLS as flows do",
		"cmd/penstock/internal/counts":    shared,
		"cmd/penstock/internal/saved":     "the last good answers of registries are a file that is written as a whole",
		"cmd/penstock/internal/spec":      shared,
		"quichello":                       "the headers of QUIC that members answer to checks",
		"relay":                           public,
		"github.com/cespare/xxhash/v2":    "a hash that is the same in every process, so that parallel relays agree; no dependencies",
		"github.com/quic-go/quic-go":      "checks shake hands by QUIC",
		"golang.org/x/net/dns/dnsmessage": "package net does not return the TTL",
	}, tests: edges{
		"cmd/penstock/internal/testcerts": certificates,
		"golang.org/x/net/quic":           "a server that is checked",
	}},
	{pkg: "cmd/penstock/internal/sandboxneeds", code: edges{
		"cmd/penstock/internal/spec": shared,
		"sandbox":                    "the policy that a configuration is turned into",
	}, tests: edges{
		"cmd/penstock/internal/config": "no key that names a path or a port is forgotten",
	}},
	{pkg: "cmd/penstock/internal/counts"},
	{pkg: "cmd/penstock/internal/remote", code: edges{
		"cmd/penstock/internal/spec": shared,
	}},
	{pkg: "cmd/penstock/internal/etcd", code: edges{
		"cmd/penstock/internal/spec":   shared,
		"cmd/penstock/internal/remote": clients,
	}},
	{pkg: "cmd/penstock/internal/discover", code: edges{
		"relay":                          public,
		"cmd/penstock/internal/spec":     shared,
		"cmd/penstock/internal/quicid":   "how the ID of a server in those of connections is written",
		"cmd/penstock/internal/etcd":     "members that are keys of etcd",
		"go.yaml.in/yaml/v4":             "kubeconfig files; the configuration is read with it, too",
		"cmd/penstock/internal/remote":   clients,
		"cmd/penstock/internal/xds":      "members of control planes",
		"cmd/penstock/internal/upstream": "it has the interface of sources of members, and what a member is",
	}},
	{pkg: "cmd/penstock/internal/fleet", code: edges{
		"cmd/penstock/internal/lists":  "bans that all relays have",
		"cmd/penstock/internal/spec":   shared,
		"cmd/penstock/internal/etcd":   "a fleet is kept there",
		"cmd/penstock/internal/remote": clients,
	}},
	{pkg: "cmd/penstock/internal/ads", code: edges{
		"cmd/penstock/internal/spec":                    shared,
		"cmd/penstock/internal/remote":                  "requests, certificates and back-off, as of all clients of registries",
		"golang.org/x/time/rate":                        "a server that floods is read slowly",
		"google.golang.org/protobuf/encoding/protowire": wire,
	}},
	{pkg: "cmd/penstock/internal/xds", code: edges{
		"cmd/penstock/internal/spec":                    shared,
		"cmd/penstock/internal/ads":                     "the resources that it reads come by it",
		"cmd/penstock/internal/config":                  "its errors are told with resource and field instead of the line",
		"cmd/penstock/internal/remote":                  "it waits as all clients of registries do",
		"google.golang.org/protobuf/encoding/protowire": wire,
	}},
	{pkg: "cmd/penstock/internal/testfleet", code: edges{
		"internal/testwait": waits,
		"internal/testnet":  "a server comes back at its address",
	}},
	{pkg: "cmd/penstock/internal/otlp", code: edges{
		"cmd/penstock/internal/remote":                             "HTTP, with tokens and authorities from files",
		"cmd/penstock/internal/spec":                               shared,
		"github.com/prometheus/client_model/go":                    "metric families become data points",
		"go.opentelemetry.io/proto/slim/otlp/collector/logs/v1":    telemetry,
		"go.opentelemetry.io/proto/slim/otlp/collector/metrics/v1": telemetry,
		"go.opentelemetry.io/proto/slim/otlp/common/v1":            telemetry,
		"go.opentelemetry.io/proto/slim/otlp/logs/v1":              telemetry,
		"go.opentelemetry.io/proto/slim/otlp/metrics/v1":           telemetry,
		"go.opentelemetry.io/proto/slim/otlp/resource/v1":          telemetry,
		"google.golang.org/protobuf/proto":                         telemetry,
	}, tests: edges{
		"internal/testnet": "a collector in memory",
	}},
	{pkg: "cmd/penstock/internal/account", code: edges{
		"cmd/penstock/internal/otlp":                  "an access log goes to a collector",
		"go.opentelemetry.io/proto/slim/otlp/logs/v1": telemetry,
		"datapath":                     "flows are counted by it",
		"relay/stats":                  "what is known of the TLS of a flow",
		"cmd/penstock/internal/counts": shared,
		"cmd/penstock/internal/spec":   shared,
		"relay":                        public,
	}, tests: edges{
		"keeper": "memory that outlives a process that is killed while it counts",
		"go.opentelemetry.io/proto/slim/otlp/collector/logs/v1": "what a collector gets",
		"go.opentelemetry.io/proto/slim/otlp/common/v1":         "what a collector gets",
		"google.golang.org/protobuf/proto":                      "what a collector gets",
	}},
	{pkg: "cmd/penstock/internal/systemd", code: edges{
		"github.com/coreos/go-systemd/v22/activation": "LISTEN_FDS and its rules; it depends only on the standard library",
		"github.com/coreos/go-systemd/v22/daemon":     "sd_notify, the watchdog's interval, and CLOCK_MONOTONIC without system calls of our own",
	}},
	{pkg: "cmd/penstock/internal/testbrowser", code: edges{
		"github.com/chromedp/chromedp": "drives a headless Chromium",
		"internal/testwait":            waits,
	}},
	{pkg: "cmd/penstock/internal/dashboard", tests: edges{
		"relay":                                 "networks of made-up addresses",
		"cmd/penstock/internal/admin":           "the page is tested as it is served",
		"cmd/penstock/internal/api":             "what the page shows is compared with the API's answers",
		"cmd/penstock/internal/spec":            "an admin listener is bound at an endpoint",
		"cmd/penstock/internal/testbrowser":     "the page is tested in a browser",
		"github.com/chromedp/chromedp":          "as for cdp",
		"github.com/chromedp/chromedp/kb":       "names of keys",
		"github.com/chromedp/cdproto/cdp":       "the protocol of the browser",
		"github.com/chromedp/cdproto/emulation": "as for cdp",
		"github.com/chromedp/cdproto/input":     "as for cdp",
		"github.com/chromedp/cdproto/log":       "as for cdp",
		"github.com/chromedp/cdproto/network":   "as for cdp",
		"github.com/chromedp/cdproto/page":      "as for cdp",
		"github.com/chromedp/cdproto/runtime":   "as for cdp",
	}},
	{pkg: "cmd/penstock/internal/admin", code: edges{
		"relay/hold":                    "the reasons for which flows are lost",
		"relay/stats":                   "metrics show the counters of the engine as they are",
		"cmd/penstock/internal/account": "metrics show its counters as they are",
		"relay":                         "metrics show the engine's counters as they are",
		"cmd/penstock/internal/spec":    shared,
		"cmd/penstock/internal/api":     shared,
		"github.com/prometheus/client_golang/prometheus":            "the registry of what client_golang collects itself",
		"github.com/prometheus/client_golang/prometheus/collectors": "metrics of the Go runtime and of the process",
		"github.com/prometheus/common/expfmt":                       exposition,
		"github.com/prometheus/common/model":                        "expfmt takes the rules for escaping names from it",
		"github.com/prometheus/client_model/go":                     "metric families are passed directly to the encoder: a registry would hash and sort every series in every scrape",
	}, tests: edges{
		"github.com/prometheus/client_golang/prometheus/testutil/promlint": "metric names must follow the conventions of Prometheus",
		"go.yaml.in/yaml/v4":                       "the API's description is YAML",
		"github.com/santhosh-tekuri/jsonschema/v6": "real answers are checked against the schemas in the API's description",
	}},
	{pkg: "cmd/penstock/internal/console", code: edges{
		"cmd/penstock/internal/api":       shared,
		"cmd/penstock/internal/spec":      shared,
		"cmd/penstock/internal/packets":   "capture writes the packets of flows",
		"cmd/penstock/internal/fleet":     "commands about many relays talk to the fleet's registry, not to a daemon",
		"charm.land/bubbletea/v2":         "the live view: keys, resizing, and writing only the cells that changed, which matters over ssh",
		"charm.land/lipgloss/v2":          "styles for it, which bubbletea adapts to the terminal and NO_COLOR",
		"github.com/charmbracelet/x/term": "whether the output is a terminal, and how wide it is",
	}, tests: edges{
		"relay":                           "networks of made-up addresses",
		"cmd/penstock/internal/admin":     "commands are tested with the real server",
		"github.com/alecthomas/kong":      "command lines are parsed as app parses them",
		"github.com/creack/pty":           "the live view is tested at a real terminal",
		"github.com/charmbracelet/x/ansi": "the width of a line on a terminal",
	}},
	{pkg: "cmd/penstock/internal/packets", code: edges{
		"cmd/penstock/internal/api": shared,
		"golang.org/x/net/bpf":      "filters of packet sockets, assembled; its machine runs them in tests",
		"golang.org/x/sys/unix":     "packet sockets",
	}, tests: edges{
		"relay": "addresses",
	}},
	{pkg: "cmd/penstock/internal/doctor", code: edges{
		"dgram":                           "what it measures",
		"splice":                          "what it measures",
		"sandbox":                         "which layers this kernel can hold",
		"relay/hold":                      "whether the kernel has TLS",
		"golang.org/x/sys/unix":           "it probes the kernel, including features that the library does not need",
		"github.com/safchain/ethtool":     "features of network devices; it needs x/sys only",
		"github.com/charmbracelet/x/term": "whether the output is a terminal",
	}, tests: edges{
		"github.com/alecthomas/kong": "command lines are parsed as app parses them",
	}},
	{pkg: "cmd/penstock/internal/spec", code: edges{
		"relay": "the networks of endpoints, and their URLs",
	}},
	{pkg: "cmd/penstock/internal/api", code: edges{
		"datapath":    "its names, for a filter",
		"relay/stats": "the states of flows",
		"relay":       "addresses and their URLs",
	}},
}

// testsOfAll lists what the tests of each module may import in addition to the edges of their
// package.
var testsOfAll = map[string]edges{
	".": {
		"internal/testwait":   waits,
		"internal/testnet":    forTests,
		"internal/testkernel": "system calls that count and fail",
		"internal/simkernel":  "an engine in a kernel that is simulated",
		"internal/testcost":   "what everything costs, in one table",
	},
	"cmd/penstock": {
		"internal/testwait":               waits,
		"internal/testnet":                forTests,
		"internal/testkernel":             "a server whose queue is full, and a daemon whose system calls are counted",
		"internal/testcost":               "what everything costs, in one table",
		"cmd/penstock/internal/api":       "tests use the running daemon as its operators do",
		"cmd/penstock/internal/testcerts": "certificates, as operators have them",
		"cmd/penstock/internal/testfleet": "real servers of registries and control planes",
		"cmd/penstock/internal/quicid":    "servers of QUIC that write their own IDs into those of connections",
		"github.com/pires/go-proxyproto":  "headers of other proxies, in front of the daemon and behind it",
		"github.com/quic-go/quic-go":      "clients and servers of QUIC that move",
		"golang.org/x/net/quic":           "a QUIC connection that outlives the daemon's worker",
	},
	"bench": {"internal/testnet": forTests, "internal/testwait": waits, "quichello": "what clients of a load send is a ClientHello, or its beginning"},
	"xnet":  {"internal/testnet": forTests, "internal/testwait": waits, "relay": "a QUIC transfer through the engine"},
}

// freeModules are nested modules whose packages may import each other and any foreign module, but
// of this repository only what is listed.
var freeModules = map[string]edges{
	"bench": {
		"pool":              measured,
		"dgram":             measured,
		"splice":            measured,
		"relay":             measured,
		"relay/hold":        "whether the kernel has TLS",
		"xnet":              measured,
		"quichello":         "how many datagrams the ClientHello of a client takes",
		"internal/testport": "a relay that is measured needs a port before it listens",
	},
	"fleettest": {},
	"xnet": {
		"dgram": "the batch API of x/net is built on it",
		"pool":  pooled,
	},
}

// testOnly are the packages that no code imports except for each other's.
var testOnly = []string{"internal/testnet", "internal/testwait", "internal/testport", "internal/testkernel", "internal/simkernel", "internal/testcost", "internal/archtest", "cmd/penstock/internal/testfleet", "cmd/penstock/internal/testcerts", "cmd/penstock/internal/testconvert", "cmd/penstock/internal/testbrowser"}

// sharedTypes are the packages that all packages of the daemon may import. Only app may import the
// others.
var sharedTypes = []string{"cmd/penstock/internal/spec", "cmd/penstock/internal/api", "cmd/penstock/internal/counts", "cmd/penstock/internal/lists"}

// edgesBetween are the exceptions: admin reads the counters of account, which would otherwise need a second
// set of types and code to copy them; checks of members use certificates as their flows do; the readers of other products' configurations fill the plan of package convert, which one package of tests tries with all of them; and what the daemon knows from registries comes in layers, from HTTP to
// members and configurations.
var edgesBetween = map[string][]string{
	"cmd/penstock/internal/sandboxed":  {"cmd/penstock/internal/account", "cmd/penstock/internal/config", "cmd/penstock/internal/sandboxneeds", "cmd/penstock/internal/discover", "cmd/penstock/internal/earlykeeper", "cmd/penstock/internal/host", "cmd/penstock/internal/keeping", "cmd/penstock/internal/systemd"},
	"cmd/penstock/internal/keeping":    {"cmd/penstock/internal/saved", "cmd/penstock/internal/config", "cmd/penstock/internal/rules", "cmd/penstock/internal/account", "cmd/penstock/internal/upstream", "cmd/penstock/internal/admit", "cmd/penstock/internal/admin", "cmd/penstock/internal/systemd", "cmd/penstock/internal/earlykeeper", "cmd/penstock/internal/sandboxneeds", "cmd/penstock/internal/host", "cmd/penstock/internal/logs"},
	"cmd/penstock/internal/hooks":      {"cmd/penstock/internal/logs", "cmd/penstock/internal/account", "cmd/penstock/internal/admit", "cmd/penstock/internal/certs", "cmd/penstock/internal/sandboxneeds", "cmd/penstock/internal/cycle", "cmd/penstock/internal/starttls", "cmd/penstock/internal/firstbytes", "cmd/penstock/internal/ja4", "cmd/penstock/internal/quicid", "cmd/penstock/internal/route", "cmd/penstock/internal/saved", "cmd/penstock/internal/upstream", "cmd/penstock/internal/destination"},
	"cmd/penstock/internal/config":     {"cmd/penstock/internal/quicid"},
	"cmd/penstock/internal/firstbytes": {"cmd/penstock/internal/starttls"},
	"cmd/penstock/internal/route":      {"cmd/penstock/internal/firstbytes"},
	"cmd/penstock/internal/liveflows":  {"cmd/penstock/internal/hooks", "cmd/penstock/internal/upstream"},
	"cmd/penstock/internal/offline":    {"cmd/penstock/internal/cli", "cmd/penstock/internal/config", "cmd/penstock/internal/rules", "cmd/penstock/internal/cycle", "cmd/penstock/internal/sources", "cmd/penstock/internal/console", "cmd/penstock/internal/convert", "cmd/penstock/internal/convert/haproxy", "cmd/penstock/internal/convert/nginx", "cmd/penstock/internal/manual", "cmd/penstock/internal/firstbytes", "cmd/penstock/internal/quicid", "cmd/penstock/internal/route", "cmd/penstock/internal/certs", "cmd/penstock/internal/upstream", "cmd/penstock/internal/destination", "cmd/penstock/internal/etcd", "cmd/penstock/internal/remote", "cmd/penstock/internal/fleet"},
	"cmd/penstock/internal/sources":    {"cmd/penstock/internal/saved", "cmd/penstock/internal/config", "cmd/penstock/internal/remote", "cmd/penstock/internal/etcd", "cmd/penstock/internal/fleet", "cmd/penstock/internal/xds"},
	"cmd/penstock/internal/rules":      {"cmd/penstock/internal/account", "cmd/penstock/internal/certs", "cmd/penstock/internal/config", "cmd/penstock/internal/cycle"},
	"cmd/penstock/internal/logs":       {"cmd/penstock/internal/console"},
	"cmd/penstock/internal/upstream":   {"cmd/penstock/internal/certs", "cmd/penstock/internal/saved", "cmd/penstock/internal/starttls"},
	"cmd/penstock/internal/admin":      {"cmd/penstock/internal/account"},
	"cmd/penstock/internal/account":    {"cmd/penstock/internal/otlp"},
	"cmd/penstock/internal/otlp":       {"cmd/penstock/internal/remote"},
	"cmd/penstock/internal/etcd":       {"cmd/penstock/internal/remote"},
	"cmd/penstock/internal/discover":   {"cmd/penstock/internal/etcd", "cmd/penstock/internal/quicid", "cmd/penstock/internal/remote", "cmd/penstock/internal/upstream", "cmd/penstock/internal/xds"},
	"cmd/penstock/internal/ads":        {"cmd/penstock/internal/remote"},
	"cmd/penstock/internal/xds":        {"cmd/penstock/internal/ads", "cmd/penstock/internal/config", "cmd/penstock/internal/remote"},
	"cmd/penstock/internal/lists":      {"cmd/penstock/internal/etcd", "cmd/penstock/internal/remote"},
	"cmd/penstock/internal/fleet":      {"cmd/penstock/internal/etcd", "cmd/penstock/internal/remote"},
	"cmd/penstock/internal/console":    {"cmd/penstock/internal/fleet", "cmd/penstock/internal/packets"},

	"cmd/penstock/internal/convert":         {"cmd/penstock/internal/firstbytes"},
	"cmd/penstock/internal/convert/haproxy": {"cmd/penstock/internal/convert"},
	"cmd/penstock/internal/convert/nginx":   {"cmd/penstock/internal/convert"},
	"cmd/penstock/internal/testconvert":     {"cmd/penstock/internal/convert", "cmd/penstock/internal/config"},
}

// nested lists the folders of the nested modules.
var nested = []string{"cmd/penstock", "bench", "fleettest", "xnet"}
