package fleet

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
)

// score returns the place of a relay among all of them, for a version: rendezvous hashing, so that each version
// is tried by other relays, and each relay knows its own place without knowing the others.
func score(node string, version int64) uint64 {
	sum := sha256.Sum256(fmt.Appendf(nil, "penstock canary %d %s", version, node))
	return binary.BigEndian.Uint64(sum[:8])
}

// Has reports whether a relay is one of the canaries.
func (c *Canary) Has(node string) bool {
	return fmt.Sprintf("%016x", score(node, c.Version)) <= c.Below
}

// chooseCanaries returns those of the relays that try a version first, at least one and in order of their names,
// and the score that they are not above.
func chooseCanaries(nodes []string, version int64, share float64) (chosen []string, below string) {
	if len(nodes) == 0 {
		return nil, ""
	}
	all := slices.Clone(nodes)
	slices.SortFunc(all, func(a, b string) int { return cmp.Compare(score(a, version), score(b, version)) })
	n := int(math.Round(share * float64(len(all))))
	chosen = all[:max(1, min(n, len(all)))]
	below = fmt.Sprintf("%016x", score(chosen[len(chosen)-1], version))
	slices.Sort(chosen)
	return chosen, below
}
