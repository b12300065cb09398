package xds

var clusterTable = message{"envoy.config.cluster.v3.Cluster", "a group", []field{
	{43, "transport_socket_matches", otherKind, refused, nil, "all members are connected to alike"},
	{59, "transport_socket_matcher", otherKind, refused, nil, "all members are connected to alike"},
	{1, "name", textKind, done, nil, "the name; letters that names here do not have become hyphens, and a hash is added"},
	{28, "alt_stat_name", textKind, silent, nil, "metrics have the group's name"},
	{61, "stats_matcher", otherKind, silent, nil, "metrics have fixed names"},
	{2, "type", numberKind, done, nil, "STATIC: `members`. STRICT_DNS: `members` with their host names. LOGICAL_DNS: the same, where Envoy would use one of the addresses at a time. EDS: `discover: [{xds}]`. ORIGINAL_DST is refused"},
	{38, "cluster_type", messageKind, done, &customClusterTable, "instead of type: a cluster of dynamic_forward_proxy is a group with `destination`"},
	{3, "eds_cluster_config", messageKind, done, &edsClusterTable, ""},
	{4, "connect_timeout", durationKind, done, nil, "`timeouts: {connect}`; 5s if it is not set, as in Envoy"},
	{5, "per_connection_buffer_limit_bytes", wrappedKind, ignored, nil, "the engine has its own buffers"},
	{60, "per_connection_buffer_high_watermark_timeout", durationKind, ignored, nil, "use idle_timeout"},
	{6, "lb_policy", numberKind, done, nil, "ROUND_ROBIN: `round-robin`. LEAST_REQUEST: `p2c`. RANDOM: `random`, of members with equal weights. RING_HASH, MAGLEV: `maglev`. CLUSTER_PROVIDED: with cluster_type only"},
	{33, "load_assignment", messageKind, done, &assignmentTable, "`members`"},
	{8, "health_checks", messageKind, done, &healthCheckTable, "`check`; one at most"},
	{9, "max_requests_per_connection", wrappedKind, silent, nil, "it concerns HTTP"},
	{10, "circuit_breakers", messageKind, done, &breakersTable, ""},
	{46, "upstream_http_protocol_options", otherKind, silent, nil, "it concerns HTTP"},
	{29, "common_http_protocol_options", otherKind, silent, nil, "it concerns HTTP"},
	{13, "http_protocol_options", otherKind, silent, nil, "it concerns HTTP"},
	{14, "http2_protocol_options", otherKind, silent, nil, "it concerns HTTP"},
	{36, "typed_extension_protocol_options", otherKind, silent, nil, "it concerns HTTP"},
	{16, "dns_refresh_rate", durationKind, ignored, nil, "names are looked up again when their records expire"},
	{58, "dns_jitter", durationKind, ignored, nil, "look-ups have a random part of their own"},
	{44, "dns_failure_refresh_rate", otherKind, ignored, nil, "as dns_refresh_rate"},
	{39, "respect_dns_ttl", numberKind, silent, nil, "it is always respected"},
	{17, "dns_lookup_family", numberKind, ignored, nil, "both families are used"},
	{18, "dns_resolvers", otherKind, ignored, nil, "the system's resolver is used"},
	{45, "use_tcp_for_dns_lookups", numberKind, ignored, nil, "the system's resolver is used"},
	{53, "dns_resolution_config", otherKind, ignored, nil, "the system's resolver is used"},
	{55, "typed_dns_resolver_config", otherKind, ignored, nil, "the system's resolver is used"},
	{54, "wait_for_warm_on_init", wrappedKind, silent, nil, "members are asked for before the configuration is applied"},
	{19, "outlier_detection", messageKind, done, &outlierTable, "`eject`"},
	{20, "cleanup_interval", durationKind, silent, nil, "it concerns ORIGINAL_DST"},
	{21, "upstream_bind_config", messageKind, done, &bindTable, "`source`"},
	{22, "lb_subset_config", otherKind, refused, nil, "groups have no subsets"},
	{23, "ring_hash_lb_config", otherKind, silent, nil, "Maglev is used instead of a ring"},
	{52, "maglev_lb_config", otherKind, ignored, nil, "tables have a fixed size"},
	{34, "original_dst_lb_config", otherKind, refused, nil, "there is no ORIGINAL_DST"},
	{37, "least_request_lb_config", messageKind, done, &leastRequestTable, ""},
	{56, "round_robin_lb_config", messageKind, done, &roundRobinTable, ""},
	{27, "common_lb_config", messageKind, done, &commonTable, ""},
	{24, "transport_socket", messageKind, done, &transportSocketTable, ""},
	{25, "metadata", otherKind, silent, nil, "for the control plane"},
	{26, "protocol_selection", numberKind, silent, nil, "it concerns HTTP"},
	{30, "upstream_connection_options", messageKind, done, &connectionTable, ""},
	{31, "close_connections_on_host_health_failure", numberKind, done, nil, "`down: {live-flows: close}`. When more than half of the members go down at once, or while a priority panics, flows continue"},
	{32, "ignore_health_on_host_removal", numberKind, silent, nil, "members that are removed get no new flows, whatever their health"},
	{40, "filters", otherKind, refused, nil, "bytes are relayed as they are"},
	{41, "load_balancing_policy", messageKind, done, &policiesTable, "`balance`, from the first policy that is known: round_robin, least_request, random, maglev, ring_hash"},
	{42, "lrs_server", otherKind, ignored, nil, "load is not reported to the control plane"},
	{57, "lrs_report_endpoint_metrics", otherKind, ignored, nil, "load is not reported to the control plane"},
	{47, "track_timeout_budgets", numberKind, silent, nil, "for statistics"},
	{48, "upstream_config", otherKind, refused, nil, "there are no custom upstreams"},
	{49, "track_cluster_stats", otherKind, silent, nil, "for statistics"},
	{50, "preconnect_policy", otherKind, ignored, nil, "connections are made for a client"},
	{51, "connection_pool_per_downstream_connection", numberKind, silent, nil, "each flow has a connection of its own"},
	{62, "queuing_policies", otherKind, ignored, nil, "use `queue` of the configuration"},
}}

var customClusterTable = message{"envoy.config.cluster.v3.Cluster.CustomClusterType", "", []field{
	{1, "name", textKind, silent, nil, "the type of typed_config counts"},
	{2, "typed_config", anyKind, done, nil, "envoy.extensions.clusters.dynamic_forward_proxy.v3.ClusterConfig"},
}}

var dynamicClusterTable = message{"envoy.extensions.clusters.dynamic_forward_proxy.v3.ClusterConfig", "`destination: {allow: [\"*\"]}`, with the port of sni_dynamic_forward_proxy. Addresses that are private or otherwise reserved are refused, which Envoy connects to", []field{
	{1, "dns_cache_config", messageKind, done, &dnsCacheTable, ""},
	{4, "sub_clusters_config", otherKind, refused, nil, "all names are looked up alike"},
	{2, "allow_insecure_cluster_options", numberKind, silent, nil, "it concerns TLS, which passes through"},
	{3, "allow_coalesced_connections", numberKind, silent, nil, "it concerns HTTP"},
}}

var dnsCacheTable = message{"envoy.extensions.common.dynamic_forward_proxy.v3.DnsCacheConfig", "there is one cache for all groups, whose bounds are in `names` of the configuration", []field{
	{1, "name", textKind, silent, nil, "there is one cache"},
	{2, "dns_lookup_family", numberKind, ignored, nil, "both families are used"},
	{3, "dns_refresh_rate", durationKind, ignored, nil, "names are looked up again when their records expire and a client asks for them"},
	{14, "dns_min_refresh_rate", durationKind, ignored, nil, "use `names: {min-age}`"},
	{4, "host_ttl", durationKind, ignored, nil, "use `names: {max-age}`"},
	{5, "max_hosts", wrappedKind, ignored, nil, "use `names: {kept}`"},
	{15, "disable_dns_refresh_on_failure", numberKind, silent, nil, "a failure is kept for a second, and then asked again when a client asks"},
	{6, "dns_failure_refresh_rate", otherKind, ignored, nil, "as disable_dns_refresh_on_failure"},
	{7, "dns_cache_circuit_breaker", otherKind, ignored, nil, "use `names: {queue}`"},
	{8, "use_tcp_for_dns_lookups", numberKind, ignored, nil, "the system's resolver is used"},
	{9, "dns_resolution_config", otherKind, ignored, nil, "the system's resolver is used"},
	{12, "typed_dns_resolver_config", otherKind, ignored, nil, "the system's resolver is used"},
	{10, "preresolve_hostnames", otherKind, silent, nil, "names are looked up when a client asks for them"},
	{11, "dns_query_timeout", durationKind, ignored, nil, "use `names: {timeout}`"},
	{13, "key_value_config", otherKind, ignored, nil, "names are not kept for the next start"},
	{16, "resolved_address_filter", otherKind, refused, nil, "use `networks` of a destination in the configuration"},
}}

var edsClusterTable = message{"envoy.config.cluster.v3.Cluster.EdsClusterConfig", "", []field{
	{1, "eds_config", messageKind, done, &configSourceTable, ""},
	{2, "service_name", textKind, done, nil, "the name of the ClusterLoadAssignment; the cluster's if it is not set"},
}}

var configSourceTable = message{"envoy.config.core.v3.ConfigSource", "", []field{
	{7, "authorities", otherKind, refused, nil, "names have no authorities"},
	{1, "path", textKind, refused, nil, "endpoints come from the same control plane: ads or self"},
	{8, "path_config_source", otherKind, refused, nil, "as path"},
	{2, "api_config_source", otherKind, refused, nil, "as path"},
	{3, "ads", otherKind, silent, nil, "endpoints come from the same control plane"},
	{5, "self", otherKind, silent, nil, "endpoints come from the same control plane"},
	{4, "initial_fetch_timeout", durationKind, silent, nil, "the relay waits for 15 s, as Envoy does by default"},
	{6, "resource_api_version", numberKind, silent, nil, "it is version 3"},
}}

var leastRequestTable = message{"envoy.config.cluster.v3.Cluster.LeastRequestLbConfig", "", []field{
	{1, "choice_count", wrappedKind, ignored, nil, "two members are compared"},
	{2, "active_request_bias", otherKind, ignored, nil, "members are compared by their flows and weights"},
	{3, "slow_start_config", messageKind, done, &slowStartTable, ""},
}}

var roundRobinTable = message{"envoy.config.cluster.v3.Cluster.RoundRobinLbConfig", "", []field{
	{1, "slow_start_config", messageKind, done, &slowStartTable, ""},
}}

var slowStartTable = message{"envoy.config.cluster.v3.Cluster.SlowStartConfig", "", []field{
	{1, "slow_start_window", durationKind, done, nil, "`slow-start`"},
	{2, "aggression", otherKind, ignored, nil, "a member's share grows linearly"},
	{3, "min_weight_percent", percentKind, ignored, nil, "a member's share begins near 0"},
}}

var commonTable = message{"envoy.config.cluster.v3.Cluster.CommonLbConfig", "", []field{
	{1, "healthy_panic_threshold", percentKind, done, nil, "`panic`; 50% if it is not set, as in Envoy. Of other types than EDS with checks or outlier detection only, and for the group as a whole"},
	{2, "zone_aware_lb_config", rawKind, done, nil, "`zone: prefer`"},
	{3, "locality_weighted_lb_config", rawKind, done, nil, "`zone: weighted`; of other types than EDS ignored with a warning"},
	{4, "update_merge_window", durationKind, silent, nil, "changes are merged for 100 ms"},
	{5, "ignore_new_hosts_until_first_hc", numberKind, silent, nil, "a new member is used until its first check has failed"},
	{6, "close_connections_on_host_set_change", numberKind, ignored, nil, "`removed` of the configuration says what happens to flows"},
	{7, "consistent_hashing_lb_config", otherKind, ignored, nil, "Maglev hashes the member's address"},
	{8, "override_host_status", otherKind, ignored, nil, "each flow is balanced"},
}}

var connectionTable = message{"envoy.config.cluster.v3.UpstreamConnectionOptions", "", []field{
	{1, "tcp_keepalive", messageKind, done, &keepaliveTable, "`tcp` of the group"},
	{2, "set_local_interface_name_on_upstream_connections", numberKind, silent, nil, "for statistics"},
	{3, "happy_eyeballs_config", otherKind, ignored, nil, "a member has one address"},
}}

var policiesTable = message{"envoy.config.cluster.v3.LoadBalancingPolicy", "", []field{
	{1, "policies", messageKind, done, &policyTable, ""},
}}

var policyTable = message{"envoy.config.cluster.v3.LoadBalancingPolicy.Policy", "", []field{
	{4, "typed_extension_config", messageKind, done, &extensionTable, ""},
}}

var roundRobinPolicyTable = message{"envoy.extensions.load_balancing_policies.round_robin.v3.RoundRobin", "", []field{
	{1, "slow_start_config", messageKind, done, &policySlowStartTable, ""},
	{2, "locality_lb_config", messageKind, done, &localityPolicyTable, ""},
}}

var leastRequestPolicyTable = message{"envoy.extensions.load_balancing_policies.least_request.v3.LeastRequest", "", []field{
	{1, "choice_count", wrappedKind, ignored, nil, "two members are compared"},
	{2, "active_request_bias", otherKind, ignored, nil, "members are compared by their flows and weights"},
	{3, "slow_start_config", messageKind, done, &policySlowStartTable, ""},
	{4, "locality_lb_config", messageKind, done, &localityPolicyTable, ""},
	{5, "enable_full_scan", wrappedKind, done, nil, "`least-connections`"},
	{6, "selection_method", numberKind, done, nil, "FULL_SCAN: `least-connections`"},
}}

var randomPolicyTable = message{"envoy.extensions.load_balancing_policies.random.v3.Random", "", []field{
	{1, "locality_lb_config", messageKind, done, &localityPolicyTable, ""},
}}

var maglevPolicyTable = message{"envoy.extensions.load_balancing_policies.maglev.v3.Maglev", "", []field{
	{1, "table_size", wrappedKind, ignored, nil, "tables have a fixed size"},
	{2, "consistent_hashing_lb_config", otherKind, ignored, nil, "Maglev hashes the member's address"},
	{3, "locality_weighted_lb_config", rawKind, done, nil, "`zone: weighted`"},
}}

var ringHashPolicyTable = message{"envoy.extensions.load_balancing_policies.ring_hash.v3.RingHash", "", []field{
	{1, "hash_function", numberKind, silent, nil, "Maglev is used instead of a ring"},
	{2, "minimum_ring_size", wrappedKind, silent, nil, "as hash_function"},
	{3, "maximum_ring_size", wrappedKind, silent, nil, "as hash_function"},
	{4, "use_hostname_for_hashing", numberKind, ignored, nil, "Maglev hashes the member's address"},
	{5, "hash_balance_factor", wrappedKind, ignored, nil, "a client keeps its member, however loaded"},
	{6, "consistent_hashing_lb_config", otherKind, ignored, nil, "Maglev hashes the member's address"},
	{7, "locality_weighted_lb_config", rawKind, done, nil, "`zone: weighted`"},
}}

var localityPolicyTable = message{"envoy.extensions.load_balancing_policies.common.v3.LocalityLbConfig", "", []field{
	{1, "zone_aware_lb_config", rawKind, done, nil, "`zone: prefer`"},
	{2, "locality_weighted_lb_config", rawKind, done, nil, "`zone: weighted`"},
}}

var policySlowStartTable = message{"envoy.extensions.load_balancing_policies.common.v3.SlowStartConfig", "", []field{
	{1, "slow_start_window", durationKind, done, nil, "`slow-start`"},
	{2, "aggression", otherKind, ignored, nil, "a member's share grows linearly"},
	{3, "min_weight_percent", percentKind, ignored, nil, "a member's share begins near 0"},
}}

var breakersTable = message{"envoy.config.cluster.v3.CircuitBreakers", "", []field{
	{1, "thresholds", messageKind, done, &thresholdsTable, "those of priority DEFAULT"},
	{2, "per_host_thresholds", messageKind, done, &hostThresholdsTable, "those of priority DEFAULT"},
}}

var thresholdsTable = message{"envoy.config.cluster.v3.CircuitBreakers.Thresholds", "of thresholds", []field{
	{1, "priority", numberKind, done, nil, "HIGH is not used by layer 4"},
	{2, "max_connections", wrappedKind, done, nil, "`limits: {flows}` of the listener if the cluster is the only one of a single listener, or `max-flows` of the member if it is STATIC and has just one; otherwise ignored with a warning. Without it there is no limit, where Envoy has one of 1024"},
	{3, "max_pending_requests", wrappedKind, silent, nil, "each flow has a connection of its own"},
	{4, "max_requests", wrappedKind, silent, nil, "it concerns HTTP"},
	{5, "max_retries", wrappedKind, silent, nil, "it concerns HTTP"},
	{8, "retry_budget", otherKind, silent, nil, "it concerns HTTP"},
	{6, "track_remaining", numberKind, silent, nil, "for statistics"},
	{7, "max_connection_pools", wrappedKind, silent, nil, "connections are not pooled"},
}}

var hostThresholdsTable = message{"envoy.config.cluster.v3.CircuitBreakers.Thresholds", "of per_host_thresholds", []field{
	{1, "priority", numberKind, done, nil, "HIGH is not used by layer 4"},
	{2, "max_connections", wrappedKind, done, nil, "`max-flows` of each member"},
	{3, "max_pending_requests", wrappedKind, silent, nil, "not used by Envoy either"},
	{4, "max_requests", wrappedKind, silent, nil, "as max_pending_requests"},
	{5, "max_retries", wrappedKind, silent, nil, "as max_pending_requests"},
	{8, "retry_budget", otherKind, silent, nil, "as max_pending_requests"},
	{6, "track_remaining", numberKind, silent, nil, "as max_pending_requests"},
	{7, "max_connection_pools", wrappedKind, silent, nil, "as max_pending_requests"},
}}

var outlierTable = message{"envoy.config.cluster.v3.OutlierDetection", "a flow that cannot be connected is a failure of its member", []field{
	{1, "consecutive_5xx", wrappedKind, done, nil, "`failures`; 5 if it is not set, as in Envoy; 0 is 1"},
	{2, "interval", durationKind, silent, nil, "a member is ejected at once"},
	{3, "base_ejection_time", durationKind, done, nil, "`for`; 30s if it is not set. It doubles with each ejection, where Envoy's grows by itself"},
	{4, "max_ejection_percent", wrappedKind, done, nil, "`share`; 10% if it is not set"},
	{5, "enforcing_consecutive_5xx", wrappedKind, done, nil, "0: no `eject`; other than 100 is ignored with a warning"},
	{6, "enforcing_success_rate", wrappedKind, silent, nil, "success rates are not compared"},
	{7, "success_rate_minimum_hosts", wrappedKind, silent, nil, "success rates are not compared"},
	{8, "success_rate_request_volume", wrappedKind, silent, nil, "success rates are not compared"},
	{9, "success_rate_stdev_factor", wrappedKind, silent, nil, "success rates are not compared"},
	{10, "consecutive_gateway_failure", wrappedKind, silent, nil, "it concerns HTTP"},
	{11, "enforcing_consecutive_gateway_failure", wrappedKind, silent, nil, "it concerns HTTP"},
	{12, "split_external_local_origin_errors", numberKind, done, nil, "true: consecutive_local_origin_failure is used instead of consecutive_5xx"},
	{13, "consecutive_local_origin_failure", wrappedKind, done, nil, "`failures`, with split_external_local_origin_errors"},
	{14, "enforcing_consecutive_local_origin_failure", wrappedKind, done, nil, "as enforcing_consecutive_5xx"},
	{15, "enforcing_local_origin_success_rate", wrappedKind, silent, nil, "success rates are not compared"},
	{16, "failure_percentage_threshold", wrappedKind, silent, nil, "off by default"},
	{17, "enforcing_failure_percentage", wrappedKind, ignored, nil, "shares of failures are not compared"},
	{18, "enforcing_failure_percentage_local_origin", wrappedKind, ignored, nil, "shares of failures are not compared"},
	{19, "failure_percentage_minimum_hosts", wrappedKind, silent, nil, "off by default"},
	{20, "failure_percentage_request_volume", wrappedKind, silent, nil, "off by default"},
	{21, "max_ejection_time", durationKind, done, nil, "`max`; 300s if it is not set"},
	{22, "max_ejection_time_jitter", durationKind, ignored, nil, "the end of an ejection is not spread"},
	{23, "successful_active_health_check_uneject_host", wrappedKind, ignored, nil, "an ejection lasts for its time"},
	{24, "monitors", otherKind, refused, nil, "there are no custom monitors"},
	{25, "always_eject_one_host", wrappedKind, ignored, nil, "`share` decides"},
	{26, "detect_degraded_hosts", wrappedKind, ignored, nil, "it concerns HTTP"},
}}

var bindTable = message{"envoy.config.core.v3.BindConfig", "", []field{
	{1, "source_address", messageKind, done, &socketAddressTable, "an address; port 0"},
	{2, "freebind", wrappedKind, ignored, nil, "the address must be this host's"},
	{3, "socket_options", otherKind, ignored, nil, "`tcp` of the configuration has options by name"},
	{5, "extra_source_addresses", otherKind, ignored, nil, "source_address is used"},
	{4, "additional_source_addresses", otherKind, ignored, nil, "source_address is used"},
	{6, "local_address_selector", otherKind, refused, nil, "there are no custom selectors"},
	{7, "validate_network_namespaces", numberKind, silent, nil, "sockets are in the network namespace of the relay"},
}}

var healthCheckTable = message{"envoy.config.core.v3.HealthCheck", "", []field{
	{27, "name", textKind, silent, nil, "for statistics"},
	{1, "timeout", durationKind, done, nil, "`timeout`"},
	{2, "interval", durationKind, done, nil, "`every`"},
	{20, "initial_jitter", durationKind, silent, nil, "the first checks are spread anyway"},
	{3, "interval_jitter", durationKind, done, nil, "`jitter`, as a share of interval"},
	{18, "interval_jitter_percent", numberKind, done, nil, "`jitter`"},
	{4, "unhealthy_threshold", wrappedKind, done, nil, "`fall`"},
	{5, "healthy_threshold", wrappedKind, done, nil, "`rise`"},
	{6, "alt_port", wrappedKind, done, nil, "`port`"},
	{7, "reuse_connection", wrappedKind, silent, nil, "each check has a connection of its own"},
	{8, "http_health_check", messageKind, done, &httpCheckTable, "`http`"},
	{9, "tcp_health_check", messageKind, done, &tcpCheckTable, "`tcp` or `send-expect`"},
	{11, "grpc_health_check", otherKind, refused, nil, "there are no gRPC checks"},
	{13, "custom_health_check", otherKind, refused, nil, "there are no custom checks"},
	{12, "no_traffic_interval", durationKind, silent, nil, "interval is always used"},
	{24, "no_traffic_healthy_interval", durationKind, silent, nil, "interval is always used"},
	{14, "unhealthy_interval", durationKind, done, nil, "`every-down`"},
	{15, "unhealthy_edge_interval", durationKind, ignored, nil, "interval is always used"},
	{16, "healthy_edge_interval", durationKind, ignored, nil, "interval is always used"},
	{17, "event_log_path", textKind, ignored, nil, "the daemon's log has the changes of members"},
	{25, "event_logger", otherKind, ignored, nil, "as event_log_path"},
	{22, "event_service", otherKind, ignored, nil, "as event_log_path"},
	{19, "always_log_health_check_failures", numberKind, ignored, nil, "as event_log_path"},
	{26, "always_log_health_check_success", numberKind, ignored, nil, "as event_log_path"},
	{21, "tls_options", otherKind, refused, nil, "checks have no TLS"},
	{23, "transport_socket_match_criteria", otherKind, refused, nil, "all members are connected to alike"},
}}

var tcpCheckTable = message{"envoy.config.core.v3.HealthCheck.TcpHealthCheck", "", []field{
	{1, "send", messageKind, done, &payloadTable, "`send`"},
	{2, "receive", messageKind, done, &payloadTable, "`expect`; one at most"},
	{3, "proxy_protocol_config", otherKind, refused, nil, "checks send no PROXY header"},
}}

var httpCheckTable = message{"envoy.config.core.v3.HealthCheck.HttpHealthCheck", "", []field{
	{1, "host", textKind, done, nil, "`host`"},
	{2, "path", textKind, done, nil, "`path`"},
	{3, "send", otherKind, refused, nil, "the request has no body"},
	{4, "receive", otherKind, refused, nil, "the status decides"},
	{14, "response_buffer_size", wrappedKind, silent, nil, "as receive"},
	{6, "request_headers_to_add", otherKind, ignored, nil, "the request has a Host only"},
	{8, "request_headers_to_remove", textKind, silent, nil, "the request has a Host only"},
	{9, "expected_statuses", messageKind, done, &int64RangeTable, "`statuses`; 200 if it is not set, as in Envoy"},
	{12, "retriable_statuses", otherKind, ignored, nil, "`fall` counts each failure"},
	{10, "codec_client_type", numberKind, refused, nil, "checks speak HTTP/1.1"},
	{15, "use_alpn_protocol", numberKind, refused, nil, "checks speak HTTP/1.1"},
	{11, "service_name_matcher", otherKind, refused, nil, "the status decides"},
	{13, "method", numberKind, done, nil, "`method`; CONNECT is refused"},
}}

var payloadTable = message{"envoy.config.core.v3.HealthCheck.Payload", "", []field{
	{1, "text", textKind, done, nil, "hexadecimal digits"},
	{2, "binary", textKind, done, nil, "bytes"},
}}

var int64RangeTable = message{"envoy.type.v3.Int64Range", "", []field{
	{1, "start", numberKind, done, nil, ""},
	{2, "end", numberKind, done, nil, "excluded"},
}}
