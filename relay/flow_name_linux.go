package relay

import "net/netip"

// flowName is what a proxy has said of a flow of datagrams; see package origin.
type flowName struct {
	is         bool
	each       bool // each of its datagrams has a header
	client, to netip.AddrPort
	reply      preface // in front of each reply
}
