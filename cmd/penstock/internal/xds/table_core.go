package xds

// Messages that several others use.

var addressTable = message{"envoy.config.core.v3.Address", "", []field{
	{1, "socket_address", messageKind, done, &socketAddressTable, ""},
	{2, "pipe", messageKind, done, &pipeTable, "a Unix socket"},
	{3, "envoy_internal_address", otherKind, refused, nil, "there are no internal listeners"},
}}

var socketAddressTable = message{"envoy.config.core.v3.SocketAddress", "", []field{
	{1, "protocol", numberKind, done, nil, "TCP or UDP"},
	{2, "address", textKind, done, nil, "an address; of an endpoint of a cluster with DNS also a host name"},
	{3, "port_value", numberKind, done, nil, "the port"},
	{4, "named_port", otherKind, refused, nil, "ports have numbers"},
	{5, "resolver_name", otherKind, refused, nil, "there are no custom resolvers"},
	{6, "ipv4_compat", numberKind, silent, nil, "a listener at [::] accepts IPv4 clients in any case"},
	{7, "network_namespace_filepath", otherKind, refused, nil, "sockets are in the network namespace of the relay"},
}}

var pipeTable = message{"envoy.config.core.v3.Pipe", "", []field{
	{1, "path", textKind, done, nil, "the path; a leading @ is the abstract namespace"},
	{2, "mode", numberKind, done, nil, "`mode` of a listener"},
}}

var rangeTable = message{"envoy.config.core.v3.CidrRange", "", []field{
	{1, "address_prefix", textKind, done, nil, ""},
	{2, "prefix_len", wrappedKind, done, nil, "0 if it is not set"},
}}

var extensionTable = message{"envoy.config.core.v3.TypedExtensionConfig", "", []field{
	{1, "name", textKind, silent, nil, "the type of typed_config counts"},
	{2, "typed_config", anyKind, done, nil, ""},
}}

var keepaliveTable = message{"envoy.config.core.v3.TcpKeepalive", "keys of `tcp`", []field{
	{1, "keepalive_probes", wrappedKind, done, nil, "`keepalive-count`"},
	{2, "keepalive_time", wrappedKind, done, nil, "`keepalive`"},
	{3, "keepalive_interval", wrappedKind, done, nil, "`keepalive-interval`"},
}}

var transportSocketTable = message{"envoy.config.core.v3.TransportSocket", "envoy.transport_sockets.raw_buffer, and of clusters envoy.transport_sockets.upstream_proxy_protocol; TLS is refused: it passes through untouched", []field{
	{1, "name", textKind, silent, nil, "the type of typed_config counts"},
	{3, "typed_config", anyKind, done, nil, ""},
}}

var rawBufferTable = message{"envoy.extensions.transport_sockets.raw_buffer.v3.RawBuffer", "nothing: bytes are relayed as they are", nil}

var upstreamProxyTable = message{"envoy.extensions.transport_sockets.proxy_protocol.v3.ProxyProtocolUpstreamTransport", "`proxy-protocol` of the group", []field{
	{1, "config", messageKind, done, &proxyConfigTable, ""},
	{2, "transport_socket", messageKind, done, &transportSocketTable, "raw_buffer only"},
	{3, "allow_unspecified_address", numberKind, silent, nil, "clients without an address get a header that says so"},
	{4, "tlv_as_pool_key", numberKind, silent, nil, "connections are not pooled"},
}}

var proxyConfigTable = message{"envoy.config.core.v3.ProxyProtocolConfig", "", []field{
	{1, "version", numberKind, done, nil, "`v1` or `v2`"},
	{2, "pass_through_tlvs", messageKind, done, &passTLVsTable, "`forward`"},
	{3, "added_tlvs", messageKind, done, &tlvTable, "`tlvs`"},
}}

var passTLVsTable = message{"envoy.config.core.v3.ProxyProtocolPassThroughTLVs", "", []field{
	{1, "match_type", numberKind, done, nil, "INCLUDE_ALL is `all`"},
	{2, "tlv_type", numberKind, done, nil, "the types"},
}}

var tlvTable = message{"envoy.config.core.v3.TlvEntry", "", []field{
	{1, "type", numberKind, done, nil, "0xE0 to 0xF7"},
	{2, "value", textKind, done, nil, ""},
	{3, "format_string", otherKind, refused, nil, "values are constant"},
}}

var localityTable = message{"envoy.config.core.v3.Locality", "", []field{
	{1, "region", textKind, done, nil, "tells localities apart; zones are compared by zone alone"},
	{2, "zone", textKind, done, nil, "the member's zone"},
	{3, "sub_zone", textKind, done, nil, "as region"},
}}

// Penstock's own type.

var configurationTable = message{"penstock.v1.Configuration", "a whole configuration; a google.protobuf.StringValue has the same bytes as one with `text`", []field{
	{1, "text", textKind, done, nil, "the configuration as YAML or JSON, in one text"},
	{2, "value", rawKind, done, nil, "the configuration as a google.protobuf.Struct; instead of text"},
}}
