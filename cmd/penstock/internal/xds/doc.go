// Package xds takes configuration and members from an xDS control plane.
//
// A [Client] holds one stream of the aggregated discovery service in its delta variant
// (DeltaAggregatedResources of envoy.service.discovery.v3), over HTTP/2 of net/http, with the framing
// of gRPC written out (grpc.go) and messages read and written field by field. Two things are built on
// it: [Endpoints], the members of groups from ClusterLoadAssignments, and [Configuration], the text of
// a configuration from Penstock's own type or from Envoy's Listeners and Clusters.
//
// Messages of Envoy are read by tables (table_*.go), which say of each field what becomes of it: it is
// done, ignored with a warning, or refused. docs/xds.md is made from them.
package xds
