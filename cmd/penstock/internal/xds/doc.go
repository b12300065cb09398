// Package xds takes configuration and members from an xDS control plane.
//
// Two things are built on the resources that a client of package ads receives: [Endpoints], the
// members of groups from ClusterLoadAssignments, and [Configuration], the text of a configuration
// from Penstock's own type or from Envoy's Listeners and Clusters.
//
// Messages of Envoy are read by tables (table_*.go), which say of each field what becomes of it: it is
// done, ignored with a warning, or refused. docs/xds.md is made from them.
package xds
