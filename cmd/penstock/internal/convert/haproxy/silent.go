package haproxy

import (
	"github.com/penstock/penstock/cmd/penstock/internal/convert"
)

// silent are words of HAProxy that change nothing here.
var silent = []convert.Silent{
	{Why: "the service manager's business", Words: map[string]string{
		"global": "daemon master-worker mworker-max-reloads pidfile set-dumpable",
	}},
	{Why: "names and descriptions", Words: map[string]string{
		"global": "description node",
		"proxy":  "description guid id",
		"bind":   "id",
		"server": "guid id",
	}},
	{Why: "messages of HAProxy itself", Words: map[string]string{
		"global": "expose-experimental-directives expose-deprecated-directives quiet zero-warning",
	}},
	{Why: "always so here, or not needed", Words: map[string]string{
		"global": "noevports noepoll nogetaddrinfo nokqueue nopoll noreuseport numa-cpu-mapping profiling.memory profiling.tasks setcap strict-limits thread-group thread-groups",
		"proxy":  "bind-process",
		"option": "abortonclose clitcpka contstats log-health-checks socket-stats splice-auto splice-request splice-response srvtcpka tcp-smart-accept tcp-smart-connect tcpka tcplog",
		"bind":   "defer-accept nice process shards thread v4v6",
		"server": "init-addr no-ssl-reuse no-tls-tickets resolve-opts resolvers ssl-reuse tls-tickets",
	}},
	{Why: "state that Penstock keeps at a reload", Words: map[string]string{
		"global": "server-state-base server-state-file",
		"proxy":  "load-server-state-from-file server-state-file-name",
	}},
	{Why: "the control socket's, which Penstock's own takes the place of", Words: map[string]string{
		"bind":  "expose-fd level severity-output",
		"stats": "bind-process maxconn timeout",
	}},
	{Why: "ciphers and the like, which TLS 1.2 and 1.3 choose here themselves", Words: map[string]string{
		"global": "ssl-default-bind-ciphers ssl-default-bind-ciphersuites ssl-default-bind-client-sigalgs ssl-default-bind-curves ssl-default-bind-sigalgs ssl-default-server-ciphers ssl-default-server-ciphersuites ssl-default-server-client-sigalgs ssl-default-server-curves ssl-default-server-sigalgs " +
			"ssl-dh-param-file ssl-load-extra-del-ext ssl-load-extra-files tune.ssl.cachesize tune.ssl.default-dh-param tune.ssl.lifetime tune.ssl.maxrecord",
		"bind":   "ciphers ciphersuites curves ecdhe no-ca-names no-sslv3 no-tlsv10 no-tlsv11 npn prefer-client-ciphers sigalgs",
		"server": "ciphers ciphersuites curves no-sslv3 no-tlsv10 no-tlsv11 npn sigalgs client-sigalgs",
		"tls":    "no-sslv3 no-tlsv10 no-tlsv11 prefer-client-ciphers",
	}},
	{Why: "HTTP, which mode tcp does not look at in HAProxy, either", Words: map[string]string{
		"global":  "h1-accept-payload-with-any-method h1-case-adjust h1-case-adjust-file maxcompcpuusage maxcomprate maxzlibmem tune.comp.maxlevel tune.h2.header-table-size tune.h2.initial-window-size tune.h2.max-concurrent-streams tune.h2.max-frame-size tune.http.cookielen tune.http.logurilen tune.http.maxhdr tune.idletimer tune.maxrewrite",
		"proxy":   "appsession capture compression cookie errorfile errorfiles errorloc errorloc302 errorloc303 force-persist ignore-persist max-keep-alive-queue max-session-srv-conns monitor-uri redirect reqadd reqdel retry-on rspadd rspdel stats unique-id-format unique-id-header",
		"option":  "accept-invalid-http-request accept-invalid-http-response checkcache disable-h2-upgrade forceclose forwardfor h1-case-adjust-bogus-client h1-case-adjust-bogus-server http-buffer-request http-ignore-probes http-keep-alive http-no-delay http-pretend-keepalive http-restrict-req-hdr-names http-server-close http-tunnel http-use-htx http-use-proxy-header httpclose httplog idle-close-on-response originalto prefer-last-server",
		"timeout": "http-keep-alive http-request tarpit",
		"server":  "cookie max-reuse pool-low-conn pool-max-conn pool-purge-delay ws",
	}},
	{Why: "what is said of a check for people to read, or for its report", Words: map[string]string{
		"tcp-check":  "comment",
		"http-check": "comment",
		"expect":     "comment error-status min-recv on-error on-success status-code tout-status",
		"connect":    "comment linger",
	}},
}

// nothing reports whether a word changes nothing here.
var nothing = convert.WordsOf(silent)
