package xnet

// The flags of recvmsg(2) and sendmsg(2), linux/socket.h.
const (
	msgTrunc  = 0x20
	msgCtrunc = 0x8

	// MSG_DONTWAIT, MSG_NOSIGNAL and MSG_WAITFORONE: none changes what the calls
	// here do. They wait in Go's netpoller, not in the kernel.
	ignoredFlags = 0x40 | 0x4000 | 0x10000
)
