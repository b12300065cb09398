package spec

// QUIC says that the members of a group speak QUIC, and how the connections of a client that has changed its address stay at their
// member.
type QUIC struct {
	Cloud bool         // connection IDs have the server's ID as cloud load balancers want it
	IDs   []QUICLayout // or as these configurations say; empty: the servers' IDs are not in them
	Learn bool         // IDs that are in use are learned
}

// Routable reports whether connection IDs have the ID of their server.
func (q *QUIC) Routable() bool { return q != nil && (q.Cloud || len(q.IDs) > 0) }

// A QUICLayout is one configuration of draft-ietf-quic-load-balancers. Lengths are in bytes.
type QUICLayout struct {
	Config   int // 0 to 6, which connection IDs begin with
	ServerID int
	Nonce    int
	Key      string // 16 bytes; empty: the server's ID is in the clear
}
