//go:build !linux

package xnet

// The flags of recvmsg(2) on the BSDs and on Darwin.
const (
	msgTrunc     = 0x10
	msgCtrunc    = 0x20
	msgDontwait  = 0x80
	ignoredFlags = 0
)
