package quicid

import (
	"fmt"

	"github.com/penstock/penstock/quichello"
)

// VersionName returns the name of a version of QUIC: 1, 2, or 0x and eight hexadecimal digits; empty: it is 0, which is none.
func VersionName(v uint32) string {
	switch v {
	case 0:
		return ""
	case quichello.Version1:
		return "1"
	case quichello.Version2:
		return "2"
	}
	return fmt.Sprintf("0x%08x", v)
}
