package spec

import (
	"crypto/sha256"
	"encoding/hex"
)

// HashOf returns the hash of a configuration's text, by which operators and fleets tell versions apart.
func HashOf(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}
