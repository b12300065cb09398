package feature

import "github.com/penstock/penstock/internal/sys"

// Features that datagrams use.
var (
	// GSO is UDP_SEGMENT: one call sends a run of datagrams (commit
	// bec1f6f69736). It may still be refused for one route.
	GSO = newProbe("UDP_SEGMENT", Version{4, 18}, sys.ProbeGSO)

	// GRO is UDP_GRO: one call receives a run of datagrams (commit e20cf8d3f1f7).
	GRO = newProbe("UDP_GRO", Version{5, 0}, sys.ProbeGRO)
)

// Datagram lists the probes in this file, for tests and for reports.
var Datagram = []*Probe{GSO, GRO}
