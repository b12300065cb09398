package xds

var assignmentTable = message{"envoy.config.endpoint.v3.ClusterLoadAssignment", "the members of a group", []field{
	{1, "cluster_name", textKind, done, nil, "what a group looks for"},
	{2, "endpoints", messageKind, done, &localityEndpointsTable, ""},
	{5, "named_endpoints", otherKind, refused, nil, "endpoints must be part of their locality"},
	{4, "policy", messageKind, done, &assignmentPolicyTable, ""},
}}

var assignmentPolicyTable = message{"envoy.config.endpoint.v3.ClusterLoadAssignment.Policy", "", []field{
	{2, "drop_overloads", otherKind, refused, nil, "flows are not dropped at random; use limits"},
	{3, "overprovisioning_factor", wrappedKind, done, nil, "140% if it is not set"},
	{4, "endpoint_stale_after", durationKind, ignored, nil, "members stay until the control plane says otherwise"},
	{6, "weighted_priority_health", numberKind, done, nil, ""},
}}

var localityEndpointsTable = message{"envoy.config.endpoint.v3.LocalityLbEndpoints", "", []field{
	{1, "locality", messageKind, done, &localityTable, ""},
	{9, "metadata", otherKind, silent, nil, "for the control plane"},
	{2, "lb_endpoints", messageKind, done, &endpointTable, "a member each"},
	{7, "load_balancer_endpoints", otherKind, refused, nil, "use lb_endpoints"},
	{8, "leds_cluster_locality_config", otherKind, refused, nil, "use lb_endpoints"},
	{3, "load_balancing_weight", wrappedKind, done, nil, "the locality's weight, in groups with `zone: weighted`"},
	{5, "priority", numberKind, done, nil, "the members' priority"},
	{6, "proximity", wrappedKind, silent, nil, "not used by Envoy either"},
}}

var endpointTable = message{"envoy.config.endpoint.v3.LbEndpoint", "", []field{
	{1, "endpoint", messageKind, done, &endpointAddressTable, ""},
	{5, "endpoint_name", otherKind, refused, nil, "endpoints must be part of their locality"},
	{2, "health_status", numberKind, done, nil, "UNKNOWN, HEALTHY: used. DEGRADED: gets what the healthy ones cannot take. UNHEALTHY, TIMEOUT: no new flows, and open flows finish. DRAINING: the same, and does not count in the health of its priority. In a panic all of them are used. Of other types than EDS: DEGRADED is `backup: true`, and UNHEALTHY, TIMEOUT and DRAINING are `drained: true`, unless fewer than healthy_panic_threshold would be left"},
	{3, "metadata", messageKind, done, &metadataTable, "the member's metadata"},
	{4, "load_balancing_weight", wrappedKind, done, nil, "`weight`; if one is above 256, all are scaled down"},
}}

var endpointAddressTable = message{"envoy.config.endpoint.v3.Endpoint", "", []field{
	{1, "address", messageKind, done, &addressTable, "where to connect"},
	{2, "health_check_config", messageKind, done, &endpointCheckTable, ""},
	{3, "hostname", textKind, silent, nil, "it concerns HTTP"},
	{4, "additional_addresses", otherKind, ignored, nil, "a member has one address"},
	{5, "observability_name", textKind, silent, nil, "metrics have the member's address"},
}}

var endpointCheckTable = message{"envoy.config.endpoint.v3.Endpoint.HealthCheckConfig", "", []field{
	{1, "port_value", numberKind, ignored, nil, "`port` of the check is the same for all members"},
	{2, "hostname", textKind, silent, nil, "it concerns HTTP"},
	{3, "address", otherKind, ignored, nil, "members are checked where they are connected to"},
	{4, "disable_active_health_check", numberKind, ignored, nil, "all members of a group are checked"},
}}

var metadataTable = message{"envoy.config.core.v3.Metadata", "", []field{
	{1, "filter_metadata", rawKind, done, nil, "a JSON object; left out above 1 KB"},
	{2, "typed_filter_metadata", otherKind, silent, nil, "its types are not known"},
}}
