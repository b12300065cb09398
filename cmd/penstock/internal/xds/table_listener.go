package xds

var listenerTable = message{"envoy.config.listener.v3.Listener", "a listener; with `additional_addresses` several", []field{
	{1, "name", textKind, done, nil, "the name; letters that names here do not have become hyphens, and a hash is added"},
	{2, "address", messageKind, done, &addressTable, "`listen`"},
	{33, "additional_addresses", messageKind, done, &additionalAddressTable, "a listener each, with the same routes and a number in its name"},
	{28, "stat_prefix", textKind, silent, nil, "metrics have the listener's name"},
	{39, "stats_matcher", otherKind, silent, nil, "metrics have fixed names"},
	{3, "filter_chains", messageKind, done, &filterChainTable, "`routes`, the most specific first"},
	{36, "fcds_config", otherKind, refused, nil, "filter chains must be part of the Listener"},
	{32, "filter_chain_matcher", otherKind, refused, nil, "use filter_chain_match"},
	{4, "use_original_dst", wrappedKind, refused, nil, "connections are not handed to other listeners"},
	{25, "default_filter_chain", messageKind, done, &filterChainTable, "`to`"},
	{5, "per_connection_buffer_limit_bytes", wrappedKind, ignored, nil, "the engine has its own buffers"},
	{38, "per_connection_buffer_high_watermark_timeout", durationKind, ignored, nil, "use idle_timeout"},
	{6, "metadata", otherKind, silent, nil, "for the control plane"},
	{7, "deprecated_v1", otherKind, refused, nil, "a setting of version 1"},
	{8, "drain_type", numberKind, silent, nil, "it concerns HTTP"},
	{9, "listener_filters", messageKind, done, &listenerFilterTable, "tls_inspector, http_inspector, proxy_protocol, udp_proxy"},
	{15, "listener_filters_timeout", durationKind, done, nil, "`sniff: {timeout}`; 15s if it is not set, as in Envoy; 0 is an hour"},
	{17, "continue_on_listener_filters_timeout", numberKind, ignored, nil, "a client that does not send what it must is refused"},
	{10, "transparent", wrappedKind, done, nil, "`transparent`"},
	{11, "freebind", wrappedKind, refused, nil, "use transparent, or net.ipv4.ip_nonlocal_bind"},
	{13, "socket_options", otherKind, ignored, nil, "`tcp` of the configuration has options by name"},
	{12, "tcp_fast_open_queue_length", wrappedKind, done, nil, "`tcp: {fast-open}`"},
	{16, "traffic_direction", numberKind, silent, nil, "for statistics"},
	{18, "udp_listener_config", otherKind, silent, nil, "datagrams are relayed if the address is one of UDP"},
	{19, "api_listener", otherKind, refused, nil, "there is no API for clients"},
	{20, "connection_balance_config", otherKind, silent, nil, "the kernel spreads connections over loops"},
	{21, "reuse_port", numberKind, silent, nil, "each loop has a socket of its own"},
	{29, "enable_reuse_port", wrappedKind, silent, nil, "as reuse_port"},
	{22, "access_log", otherKind, ignored, nil, "use `access-log` of the configuration"},
	{24, "tcp_backlog_size", wrappedKind, done, nil, "`backlog`"},
	{34, "max_connections_to_accept_per_socket_event", wrappedKind, silent, nil, "the engine has its own bound"},
	{26, "bind_to_port", wrappedKind, done, nil, "false is refused: a listener has a socket"},
	{27, "internal_listener", otherKind, refused, nil, "there are no internal listeners"},
	{30, "enable_mptcp", numberKind, done, nil, "`tcp: {mptcp}`"},
	{31, "ignore_global_conn_limit", numberKind, ignored, nil, "`limits` of the configuration hold for all listeners"},
	{35, "bypass_overload_manager", numberKind, ignored, nil, "as ignore_global_conn_limit"},
	{37, "tcp_keepalive", messageKind, done, &keepaliveTable, "`tcp` of the listener"},
}}

var additionalAddressTable = message{"envoy.config.listener.v3.AdditionalAddress", "", []field{
	{1, "address", messageKind, done, &addressTable, ""},
	{2, "socket_options", otherKind, ignored, nil, "as those of the listener"},
	{3, "tcp_keepalive", otherKind, ignored, nil, "the listener's is used"},
}}

var listenerFilterTable = message{"envoy.config.listener.v3.ListenerFilter", "any other filter is refused", []field{
	{1, "name", textKind, silent, nil, "the type of typed_config counts"},
	{3, "typed_config", anyKind, done, nil, ""},
	{5, "config_discovery", otherKind, refused, nil, "filters must be part of the Listener"},
	{4, "filter_disabled", otherKind, refused, nil, "a filter is for all connections"},
}}

var filterChainTable = message{"envoy.config.listener.v3.FilterChain", "a route", []field{
	{1, "filter_chain_match", messageKind, done, &filterChainMatchTable, "the conditions"},
	{3, "filters", messageKind, done, &filterTable, "tcp_proxy, alone or behind sni_dynamic_forward_proxy"},
	{4, "use_proxy_proto", wrappedKind, done, nil, "as the listener filter proxy_protocol; all chains must agree"},
	{5, "metadata", otherKind, silent, nil, "for the control plane"},
	{6, "transport_socket", messageKind, done, &transportSocketTable, "raw_buffer only"},
	{9, "transport_socket_connect_timeout", durationKind, silent, nil, "there is no handshake"},
	{7, "name", textKind, done, nil, "the route's name"},
}}

var filterChainMatchTable = message{"envoy.config.listener.v3.FilterChainMatch", "Envoy decides by one criterion after the other and never goes back: if the server name, or the transport protocol, selected some chains and none of them takes the client's address, the client is refused, although a chain without them would have taken it. Here it goes to the next route that matches, and a warning says so where it can happen", []field{
	{8, "destination_port", wrappedKind, done, nil, "the listener's own port only"},
	{3, "prefix_ranges", otherKind, refused, nil, "routes do not match by destination"},
	{4, "address_suffix", otherKind, refused, nil, "not implemented by Envoy either"},
	{5, "suffix_len", otherKind, refused, nil, "as address_suffix"},
	{13, "direct_source_prefix_ranges", otherKind, refused, nil, "routes match the client's address only"},
	{12, "source_type", numberKind, refused, nil, "use source_prefix_ranges"},
	{6, "source_prefix_ranges", messageKind, done, &rangeTable, "`from`"},
	{7, "source_ports", otherKind, refused, nil, "routes do not match by port"},
	{11, "server_names", textKind, done, nil, "`sni`"},
	{9, "transport_protocol", textKind, done, nil, "`protocol: tls` if there are no names; raw_buffer takes all that are not TLS, so another chain with tls must take the same addresses"},
	{10, "application_protocols", textKind, done, nil, "`alpn`; without TLS, with the listener filter http_inspector, http/1.0 and http/1.1 are `protocol: http`, and h2c is http2"},
}}

var filterTable = message{"envoy.config.listener.v3.Filter", "any other filter is refused", []field{
	{1, "name", textKind, silent, nil, "the type of typed_config counts"},
	{4, "typed_config", anyKind, done, nil, ""},
	{5, "config_discovery", otherKind, refused, nil, "filters must be part of the Listener"},
}}

var sniForwardTable = message{"envoy.extensions.filters.network.sni_dynamic_forward_proxy.v3.FilterConfig", "the port of the hosts that clients name; tcp_proxy behind it must lead to a cluster of dynamic_forward_proxy, or the filter changes nothing", []field{
	{1, "dns_cache_config", messageKind, done, &dnsCacheTable, ""},
	{2, "port_value", numberKind, done, nil, "`destination: {port}`"},
	{3, "save_upstream_address", numberKind, silent, nil, "for other filters"},
}}

var tcpProxyTable = message{"envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy", "", []field{
	{1, "stat_prefix", textKind, silent, nil, "metrics have the listener's name"},
	{2, "cluster", textKind, done, nil, "the route's `to`"},
	{10, "weighted_clusters", messageKind, done, &weightedTable, "the parts of the route's `to`, chosen at random, as in Envoy"},
	{14, "on_demand", otherKind, refused, nil, "clusters are known before they are used"},
	{9, "metadata_match", otherKind, refused, nil, "groups have no subsets"},
	{8, "idle_timeout", durationKind, done, nil, "`timeouts: {idle, half-closed}`; 1h if it is not set, as in Envoy; 0 is never"},
	{3, "downstream_idle_timeout", durationKind, refused, nil, "not implemented by Envoy either"},
	{4, "upstream_idle_timeout", durationKind, refused, nil, "not implemented by Envoy either"},
	{5, "access_log", otherKind, ignored, nil, "use `access-log` of the configuration"},
	{7, "max_connect_attempts", wrappedKind, done, nil, "`retries` of the group, less one; 1 if it is not set, as in Envoy"},
	{18, "backoff_options", otherKind, ignored, nil, "the next member is tried at once"},
	{11, "hash_policy", messageKind, done, &hashPolicyTable, "the client's address, with RING_HASH or MAGLEV"},
	{12, "tunneling_config", otherKind, refused, nil, "there are no HTTP tunnels"},
	{13, "max_downstream_connection_duration", durationKind, done, nil, "`timeouts: {life}`"},
	{20, "max_downstream_connection_duration_jitter_percentage", otherKind, ignored, nil, "the end of a flow's life is not spread"},
	{15, "access_log_flush_interval", durationKind, ignored, nil, "as access_log"},
	{16, "flush_access_log_on_connected", numberKind, ignored, nil, "as access_log"},
	{17, "access_log_options", otherKind, ignored, nil, "as access_log"},
	{19, "proxy_protocol_tlvs", otherKind, refused, nil, "use added_tlvs of the cluster's transport socket"},
	{23, "proxy_protocol_tlv_merge_policy", numberKind, refused, nil, "as proxy_protocol_tlvs"},
	{21, "upstream_connect_mode", numberKind, refused, nil, "upstreams are connected to at once, or after the ClientHello where a route needs it"},
	{22, "max_early_data_bytes", wrappedKind, refused, nil, "as upstream_connect_mode"},
	{24, "check_drain_close", wrappedKind, ignored, nil, "`drain` and `removed` of the configuration say how long flows continue"},
}}

var weightedTable = message{"envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy.WeightedCluster", "", []field{
	{1, "clusters", messageKind, done, &clusterWeightTable, "a part each; one that is there twice is one part"},
}}

var clusterWeightTable = message{"envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy.WeightedCluster.ClusterWeight", "", []field{
	{1, "name", textKind, done, nil, "`group`"},
	{2, "weight", numberKind, done, nil, "`weight`; if the greatest is more than 1000000, all become smaller in proportion, and stay 1 at least"},
	{3, "metadata_match", otherKind, refused, nil, "groups have no subsets"},
}}

var hashPolicyTable = message{"envoy.type.v3.HashPolicy", "", []field{
	{1, "source_ip", otherKind, silent, nil, "the client's address is what is hashed by default"},
	{2, "filter_state", otherKind, refused, nil, "only the client's address is hashed"},
}}

var udpProxyTable = message{"envoy.extensions.filters.udp.udp_proxy.v3.UdpProxyConfig", "", []field{
	{1, "stat_prefix", textKind, silent, nil, "metrics have the listener's name"},
	{2, "cluster", textKind, done, nil, "`to`"},
	{9, "matcher", messageKind, done, &matcherTable, "`to`, from on_no_match"},
	{3, "idle_timeout", durationKind, done, nil, "`timeouts: {idle}`; 60s if it is not set, as in Envoy"},
	{4, "use_original_src_ip", numberKind, done, nil, "`source: client` of the group"},
	{5, "hash_policies", messageKind, done, &udpHashTable, "the client's address, with RING_HASH or MAGLEV"},
	{6, "upstream_socket_config", otherKind, silent, nil, "the engine sizes its own buffers"},
	{7, "use_per_packet_load_balancing", numberKind, refused, nil, "a client keeps its member"},
	{8, "access_log", otherKind, ignored, nil, "use `access-log` of the configuration"},
	{10, "proxy_access_log", otherKind, ignored, nil, "as access_log"},
	{11, "session_filters", otherKind, refused, nil, "datagrams are relayed as they are"},
	{12, "tunneling_config", otherKind, refused, nil, "there are no HTTP tunnels"},
	{13, "access_log_options", otherKind, ignored, nil, "as access_log"},
}}

var udpHashTable = message{"envoy.extensions.filters.udp.udp_proxy.v3.UdpProxyConfig.HashPolicy", "", []field{
	{1, "source_ip", numberKind, silent, nil, "the client's address is what is hashed by default"},
	{2, "key", otherKind, refused, nil, "only the client's address is hashed"},
}}

var matcherTable = message{"xds.type.matcher.v3.Matcher", "", []field{
	{1, "matcher_list", otherKind, refused, nil, "a listener of datagrams has one cluster"},
	{2, "matcher_tree", otherKind, refused, nil, "a listener of datagrams has one cluster"},
	{3, "on_no_match", messageKind, done, &onMatchTable, ""},
}}

var onMatchTable = message{"xds.type.matcher.v3.Matcher.OnMatch", "", []field{
	{1, "matcher", otherKind, refused, nil, "a listener of datagrams has one cluster"},
	{2, "action", messageKind, done, &actionTable, "envoy.extensions.filters.udp.udp_proxy.v3.Route"},
	{3, "keep_matching", numberKind, refused, nil, "a listener of datagrams has one cluster"},
}}

var actionTable = message{"xds.core.v3.TypedExtensionConfig", "", []field{
	{1, "name", textKind, silent, nil, "the type of typed_config counts"},
	{2, "typed_config", anyKind, done, nil, ""},
}}

var udpRouteTable = message{"envoy.extensions.filters.udp.udp_proxy.v3.Route", "", []field{
	{1, "cluster", textKind, done, nil, "`to`"},
}}

var tlsInspectorTable = message{"envoy.extensions.filters.listener.tls_inspector.v3.TlsInspector", "a ClientHello is read where a route has `sni` or `alpn`, with this filter or without", []field{
	{1, "enable_ja3_fingerprinting", wrappedKind, ignored, nil, "there are no fingerprints"},
	{3, "enable_ja4_fingerprinting", wrappedKind, ignored, nil, "there are no fingerprints"},
	{2, "initial_read_buffer_size", wrappedKind, silent, nil, "the engine sizes its own buffers"},
	{4, "close_connection_on_client_hello_parsing_errors", numberKind, ignored, nil, "a client whose ClientHello cannot be read has no server name, and goes where such clients go"},
	{5, "max_client_hello_size", wrappedKind, done, nil, "`sniff: {max}`"},
}}

var httpInspectorTable = message{"envoy.extensions.filters.listener.http_inspector.v3.HttpInspector", "the first bytes are read where a chain has `application_protocols` of connections without TLS", nil}

var proxyFilterTable = message{"envoy.extensions.filters.listener.proxy_protocol.v3.ProxyProtocol", "`proxy-protocol: {from: [0.0.0.0/0, \"::/0\"]}`: every client must send a header", []field{
	{1, "rules", otherKind, ignored, nil, "all TLVs are kept for the upstream"},
	{2, "allow_requests_without_proxy_protocol", numberKind, refused, nil, "a client that could choose whether to send a header could forge its address"},
	{3, "pass_through_tlvs", otherKind, silent, nil, "all TLVs are kept for the upstream, which gets those of pass_through_tlvs of the cluster's transport socket"},
	{4, "disallowed_versions", numberKind, refused, nil, "both versions are accepted"},
	{5, "stat_prefix", textKind, silent, nil, "metrics have the listener's name"},
	{6, "tlv_location", numberKind, silent, nil, "as pass_through_tlvs"},
}}
