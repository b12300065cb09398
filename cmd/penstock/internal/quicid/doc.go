// Package quicid knows to which server a connection ID of QUIC belongs: by a [Layout], if the server writes its own ID into
// it, or because the ID was seen in use, in a [Table]. Short headers do not say how long an ID is; whoever reads one here
// passes all that follows the first byte of the packet. The package is pure, but for the clock that its callers pass.
package quicid
