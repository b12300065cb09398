package quicid

import (
	"encoding/hex"
	"errors"
	"strings"
)

// ParseServer parses the ID of a server, which is any bytes: pairs of hexadecimal digits, with 0x in front or without.
func ParseServer(text string) (string, error) {
	b, err := hex.DecodeString(strings.TrimPrefix(text, "0x"))
	if err != nil || len(b) == 0 || len(b) > MaxServer {
		return "", errors.New("not pairs of hexadecimal digits, of 1 to 15 bytes")
	}
	return string(b), nil
}
