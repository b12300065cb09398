package flood

import (
	"encoding/binary"
	"hash/maphash"
	"math"
	"net/netip"
	"time"

	"github.com/penstock/penstock/internal/sys"
)

// networks remembers, for each network that clients come from, how many flows it
// has begun lately, and whether it is known. Its memory is bounded: a network that
// it has no place for counts as one that has begun nothing.
//
// A client is in two networks: a wide one, which is a /24 or a /48, and a narrow one,
// which is an IPv4 address or a /64. A Unix client is in one, its path.
type networks struct {
	seed maphash.Seed
	sets [][networkPlaces]network // nil until the first client comes
}

const (
	// networkSets has 4,096 sets of 4, which are 256 KiB; nothing touches them before
	// clients come.
	networkSets   = 4096
	networkPlaces = 4
	// useTime is for how long a flow that began counts, roughly.
	useTime = 10 * time.Second
	// knownTime is for how long a network is known after the last sign of a client.
	knownTime = 10 * time.Minute
	// networkTick is the unit of the times of a network.
	networkTick = time.Millisecond
)

// network is one of a table. The first one of a set is never a known one, so
// that those that are not known can be told apart however many are known.
type network struct {
	tag   uint32  // of its hash; 0: there is none
	use   float32 // flows that it has begun lately, when at was now
	at    uint32
	known uint32 // until then; 0: it is not
}

// Place is where a client is to be found in the table of networks.
type Place struct {
	hash [2]uint64 // of its narrow and its wide network
	unix bool      // it has only a narrow one
}

// of returns the place of a client, whose address is as the kernel wrote it.
func (t *networks) of(family sys.Family, name []byte) Place {
	if t.sets == nil {
		t.sets, t.seed = make([][networkPlaces]network, networkSets), maphash.MakeSeed()
	}
	if family == sys.Unix {
		return Place{hash: [2]uint64{maphash.Bytes(t.seed, name)}, unix: true}
	}
	ap, _ := sys.GetAddrPort(name)
	narrow, wide := prefixes(ap.Addr())
	return Place{hash: [2]uint64{t.hash(narrow, 0), t.hash(wide, 1)}}
}

// prefixes returns the narrow and the wide network of an address, each in one number.
func prefixes(a netip.Addr) (narrow, wide uint64) {
	if a.Is4() {
		b := a.As4()
		n := uint64(binary.BigEndian.Uint32(b[:]))
		return n, n >> 8
	}
	b := a.As16()
	n := binary.BigEndian.Uint64(b[:8])
	return n, n >> 16
}

func (t *networks) hash(prefix uint64, width byte) uint64 {
	var b [9]byte
	binary.NativeEndian.PutUint64(b[:], prefix)
	b[8] = width
	return maphash.Bytes(t.seed, b[:])
}

func networkTime(now time.Duration) uint32 { return uint32(now / networkTick) }

func (t *networks) set(hash uint64) (set *[networkPlaces]network, tag uint32) {
	return &t.sets[hash%networkSets], uint32(hash>>32) | 1
}

// find returns a network, or nil.
func (t *networks) find(hash uint64) *network {
	set, tag := t.set(hash)
	for i := range set {
		if set[i].tag == tag {
			return &set[i]
		}
	}
	return nil
}

// weight is how much a network has begun lately, as of now.
func (n *network) weight(now uint32) float32 {
	return n.use / (1 + float32(max(0, int32(now-n.at)))/float32(useTime/networkTick))
}

func (n *network) isKnown(now uint32) bool { return n.known != 0 && int32(n.known-now) > 0 }

// look returns how much a client's networks have begun lately, and whether one of them is known. What a
// wide network has begun counts a quarter, so that each of its narrow ones finds room beside one that
// takes all it can; and not at all for a narrow one that is known.
func (t *networks) look(c Place, now time.Duration) (use float32, known bool) {
	at := networkTime(now)
	if n := t.find(c.hash[0]); n != nil {
		use, known = n.weight(at), n.isKnown(at)
	}
	if c.unix {
		return use, true // nobody else can have its address
	}
	if known {
		return use, true
	}
	if n := t.find(c.hash[1]); n != nil {
		use, known = max(use, n.weight(at)/4), n.isKnown(at)
	}
	return use, known
}

// count notes that a client has begun a flow.
func (t *networks) count(c Place, now time.Duration) {
	for _, hash := range c.hash[:c.networks()] {
		t.add(hash, 1, networkTime(now))
	}
}

// countRefused notes that a client was refused, which counts a quarter, and for the widest of its networks
// only. So those that ask again and again are told apart soon.
func (t *networks) countRefused(c Place, now time.Duration) {
	t.add(c.hash[c.networks()-1], 0.25, networkTime(now))
}

func (t *networks) add(hash uint64, use float32, at uint32) {
	n := t.find(hash)
	if n == nil {
		n = t.room(hash, at, false)
	}
	n.use, n.at = n.weight(at)+use, at
}

// know notes that a client's networks are known.
func (t *networks) know(c Place, now time.Duration) {
	at := networkTime(now)
	until := (at + uint32(knownTime/networkTick)) | 1 // 0 is none
	for _, hash := range c.hash[:c.networks()] {
		n := t.find(hash)
		if set, _ := t.set(hash); n != nil && n == &set[0] {
			moved := *n
			*n = network{}
			n = t.room(hash, at, true)
			*n = moved
		} else if n == nil {
			n = t.room(hash, at, true)
			n.use, n.at = 0, at
		}
		n.known = until
	}
}

// networks returns how many networks a client is in.
func (c *Place) networks() int {
	if c.unix {
		return 1
	}
	return 2
}

// room makes room for a network, in the place of the one that is worth least: one that is not known and has
// begun least lately or, for a known one, the one that is known for longest.
func (t *networks) room(hash uint64, at uint32, known bool) *network {
	set, tag := t.set(hash)
	var least *network
	worth := float32(math.Inf(1))
	from := 0
	if known {
		from = 1
	}
	for i := from; i < networkPlaces; i++ {
		n := &set[i]
		w := float32(0)
		switch {
		case n.tag == 0:
			w = -1
		case !n.isKnown(at):
			w = n.weight(at)
		case !known:
			continue
		default:
			w = 1e9 + float32(int32(n.known-at))
		}
		if w < worth {
			least, worth = n, w
		}
	}
	if least != nil {
		*least = network{tag: tag, at: at}
	}
	return least
}
