package xnet

// The flags of recvmsg(2) and sendmsg(2), linux/socket.h.
const (
	msgTrunc    = 0x20
	msgCtrunc   = 0x8
	msgDontwait = 0x40

	// MSG_NOSIGNAL and MSG_WAITFORONE change nothing: there is no signal, and no
	// call waits for a second datagram.
	ignoredFlags = 0x4000 | 0x10000
)
