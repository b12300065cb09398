package api

// QUIC counts flows of clients of QUIC that have moved, by how they were recognised, since the start of the daemon.
type QUIC struct {
	IDs      int64 `json:"ids"`       // connection IDs of open flows that were learned
	ServerID int64 `json:"server_id"` // their ID names the server
	Learned  int64 `json:"learned"`   // their ID was known
	Unknown  int64 `json:"unknown"`   // it was not: they were taken for new clients
}
