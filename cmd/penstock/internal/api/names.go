package api

// Names is what is known of the names that clients ask for, of groups with a destination.
type Names struct {
	Found    int64 `json:"found"`     // lookups that have found addresses
	NotFound int64 `json:"not_found"` // lookups of names that do not exist, or have no address
	Failed   int64 `json:"failed"`    // lookups that have failed
	Hits     int64 `json:"hits"`      // flows whose name was known
	Waits    int64 `json:"waits"`     // flows that have waited for a lookup
	Limited  int64 `json:"limited"`   // flows that were refused because too many names were being looked up
	Evicted  int64 `json:"evicted"`   // names that were forgotten to make room, before their answer had expired
	Names    int64 `json:"names"`     // names with addresses that are known now
	Failures int64 `json:"failures"`  // names without an address that are known now
	Lookups  int64 `json:"lookups"`   // names that are being looked up
	Queued   int64 `json:"queued"`    // names that wait to be looked up
	Flows    int64 `json:"flows"`     // flows that wait for a lookup
}
