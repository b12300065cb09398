package convert

import (
	"strings"
	"sync"
)

// meaningless are directives of one product that change nothing here, with the reason. Whatever
// is neither here nor converted is listed, so that nothing is left out without a word.
type meaningless struct {
	why   string
	words map[string]string // by where they are: words that begin a line, or options of one
}

var meaninglessOf = map[Product][]meaningless{
	HAProxy: {
		{"the service manager's business", map[string]string{
			"global": "daemon master-worker mworker-max-reloads pidfile set-dumpable",
		}},
		{"names and descriptions", map[string]string{
			"global": "description node",
			"proxy":  "description guid id",
			"bind":   "id",
			"server": "guid id",
		}},
		{"messages of HAProxy itself", map[string]string{
			"global": "expose-experimental-directives expose-deprecated-directives quiet zero-warning",
		}},
		{"always so here, or not needed", map[string]string{
			"global": "noevports noepoll nogetaddrinfo nokqueue nopoll noreuseport numa-cpu-mapping profiling.memory profiling.tasks setcap strict-limits thread-group thread-groups",
			"proxy":  "bind-process",
			"option": "abortonclose clitcpka contstats log-health-checks socket-stats splice-auto splice-request splice-response srvtcpka tcp-smart-accept tcp-smart-connect tcpka tcplog",
			"bind":   "defer-accept nice process shards thread v4v6",
			"server": "init-addr no-ssl-reuse no-tls-tickets resolve-opts resolvers ssl-reuse tls-tickets",
		}},
		{"state that Penstock keeps at a reload", map[string]string{
			"global": "server-state-base server-state-file",
			"proxy":  "load-server-state-from-file server-state-file-name",
		}},
		{"the control socket's, which Penstock's own takes the place of", map[string]string{
			"bind":  "expose-fd level severity-output",
			"stats": "bind-process maxconn timeout",
		}},
		{"ciphers and the like, which TLS 1.2 and 1.3 choose here themselves", map[string]string{
			"global": "ssl-default-bind-ciphers ssl-default-bind-ciphersuites ssl-default-bind-client-sigalgs ssl-default-bind-curves ssl-default-bind-sigalgs ssl-default-server-ciphers ssl-default-server-ciphersuites ssl-default-server-client-sigalgs ssl-default-server-curves ssl-default-server-sigalgs " +
				"ssl-dh-param-file ssl-load-extra-del-ext ssl-load-extra-files tune.ssl.cachesize tune.ssl.default-dh-param tune.ssl.lifetime tune.ssl.maxrecord",
			"bind":   "ciphers ciphersuites curves ecdhe no-ca-names no-sslv3 no-tlsv10 no-tlsv11 npn prefer-client-ciphers sigalgs",
			"server": "ciphers ciphersuites curves no-sslv3 no-tlsv10 no-tlsv11 npn sigalgs client-sigalgs",
			"tls":    "no-sslv3 no-tlsv10 no-tlsv11 prefer-client-ciphers",
		}},
		{"HTTP, which mode tcp does not look at in HAProxy, either", map[string]string{
			"global":  "h1-accept-payload-with-any-method h1-case-adjust h1-case-adjust-file maxcompcpuusage maxcomprate maxzlibmem tune.comp.maxlevel tune.h2.header-table-size tune.h2.initial-window-size tune.h2.max-concurrent-streams tune.h2.max-frame-size tune.http.cookielen tune.http.logurilen tune.http.maxhdr tune.idletimer tune.maxrewrite",
			"proxy":   "appsession capture compression cookie errorfile errorfiles errorloc errorloc302 errorloc303 force-persist ignore-persist max-keep-alive-queue max-session-srv-conns monitor-uri redirect reqadd reqdel retry-on rspadd rspdel stats unique-id-format unique-id-header",
			"option":  "accept-invalid-http-request accept-invalid-http-response checkcache disable-h2-upgrade forceclose forwardfor h1-case-adjust-bogus-client h1-case-adjust-bogus-server http-buffer-request http-ignore-probes http-keep-alive http-no-delay http-pretend-keepalive http-restrict-req-hdr-names http-server-close http-tunnel http-use-htx http-use-proxy-header httpclose httplog idle-close-on-response originalto prefer-last-server",
			"timeout": "http-keep-alive http-request tarpit",
			"server":  "cookie max-reuse pool-low-conn pool-max-conn pool-purge-delay ws",
		}},
		{"what is said of a check for people to read, or for its report", map[string]string{
			"tcp-check":  "comment",
			"http-check": "comment",
			"expect":     "comment error-status min-recv on-error on-success status-code tout-status",
			"connect":    "comment linger",
		}},
	},
	Nginx: {
		{"the service manager's business", map[string]string{
			"main": "daemon env error_log lock_file master_process pid",
		}},
		{"modules, or libraries, of nginx itself", map[string]string{
			"main": "load_module pcre_jit ssl_engine thread_pool",
		}},
		{"how nginx sees to its events, which the engine does by itself", map[string]string{
			"main":   "debug_points google_perftools_profiles timer_resolution worker_aio_requests worker_rlimit_core worker_rlimit_sigpending",
			"events": "accept_mutex accept_mutex_delay debug_connection multi_accept use worker_aio_requests",
			"listen": "bind deferred default_server reuseport",
		}},
		{"always so here", map[string]string{
			"stream": "proxy_socket_keepalive",
		}},
		{"sizes of tables and buffers of nginx'", map[string]string{
			"stream":   "map_hash_bucket_size map_hash_max_size open_log_file_cache proxy_buffer_size server_names_hash_bucket_size server_names_hash_max_size ssl_buffer_size ssl_session_cache variables_hash_bucket_size variables_hash_max_size",
			"upstream": "resolver_timeout zone",
		}},
		{"ciphers and the like, which TLS 1.2 and 1.3 choose here themselves", map[string]string{
			"stream": "proxy_ssl_ciphers proxy_ssl_session_reuse ssl_ciphers ssl_dhparam ssl_ecdh_curve ssl_prefer_server_ciphers ssl_session_timeout",
		}},
		{"nginx' own log; Penstock's goes to stderr", map[string]string{
			"stream": "error_log limit_conn_log_level",
		}},
	},
}

var meaninglessWords = sync.OnceValue(func() map[string]bool {
	all := map[string]bool{}
	for product, list := range meaninglessOf {
		for _, m := range list {
			for where, words := range m.words {
				for word := range strings.FieldsSeq(words) {
					all[string(product)+" "+where+" "+word] = true
				}
			}
		}
	}
	return all
})

// nothing reports whether a word changes nothing here.
func nothing(from Product, where, word string) bool {
	return meaninglessWords()[string(from)+" "+where+" "+word]
}
