package nginx

import (
	"github.com/penstock/penstock/cmd/penstock/internal/convert"
)

// silent are words of nginx that change nothing here.
var silent = []convert.Silent{
	{Why: "the service manager's business", Words: map[string]string{
		"main": "daemon env error_log lock_file master_process pid",
	}},
	{Why: "modules, or libraries, of nginx itself", Words: map[string]string{
		"main": "load_module pcre_jit ssl_engine thread_pool",
	}},
	{Why: "how nginx sees to its events, which the engine does by itself", Words: map[string]string{
		"main":   "debug_points google_perftools_profiles timer_resolution worker_aio_requests worker_rlimit_core worker_rlimit_sigpending",
		"events": "accept_mutex accept_mutex_delay debug_connection multi_accept use worker_aio_requests",
		"listen": "bind deferred default_server reuseport",
	}},
	{Why: "always so here", Words: map[string]string{
		"stream": "proxy_socket_keepalive",
	}},
	{Why: "sizes of tables and buffers of nginx'", Words: map[string]string{
		"stream":   "map_hash_bucket_size map_hash_max_size open_log_file_cache proxy_buffer_size server_names_hash_bucket_size server_names_hash_max_size ssl_buffer_size ssl_session_cache variables_hash_bucket_size variables_hash_max_size",
		"upstream": "resolver_timeout zone",
	}},
	{Why: "ciphers and the like, which TLS 1.2 and 1.3 choose here themselves", Words: map[string]string{
		"stream": "proxy_ssl_ciphers proxy_ssl_session_reuse ssl_ciphers ssl_dhparam ssl_ecdh_curve ssl_prefer_server_ciphers ssl_session_timeout",
	}},
	{Why: "nginx' own log; Penstock's goes to stderr", Words: map[string]string{
		"stream": "error_log limit_conn_log_level",
	}},
}

// nothing reports whether a word changes nothing here.
var nothing = convert.WordsOf(silent)
