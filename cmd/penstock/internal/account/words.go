package account

import (
	"encoding/binary"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/counts"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/datapath"
	"github.com/penstock/penstock/relay"
)

// The numbers of causes by which a flow can end, of data paths and of reasons for them, with CauseNone,
// datapath.None and datapath.WhyNone.
const (
	numCauses = int(relay.CauseRebalanced) + 1
	numPaths  = int(datapath.GSO) + 1
	numWhys   = int(datapath.WhyTLS) + 1
)

// The words of a series. Their names, not their places, are what another version knows them by.
const (
	begunAt = iota
	movedInAt
	movedOutAt
	attemptsAt
	failuresAt
	retriesAt
	endedAt // by cause
)

const (
	reasonsAt   = endedAt + numCauses
	protocolsAt = reasonsAt + int(spec.NumReasons) // by protocol, and of unknown ones
	upAt        = protocolsAt + spec.NumProtocols + 1
	downAt      = upAt + directionWords
	connectAt   = downAt + directionWords
	firstByteAt = connectAt + histogramWords
	durationAt  = firstByteAt + histogramWords
	sizesAt     = durationAt + histogramWords // ended flows, by their bytes down
	reportedAt  = sizesAt + NumSizes          // the volumes up and down that Snapshot last returned
	seriesWords = reportedAt + 2*volumeWords
)

// words are the counts of a series.
type words [seriesWords]atomic.Int64

// The words of a direction.
const (
	bytesAt = iota
	datagramsAt
	droppedAt
	datagramsDroppedAt
	pathsAt // by data path

	whysAt         = pathsAt + numPaths
	directionWords = whysAt + numWhys
)

// direction counts one direction.
type direction [directionWords]atomic.Int64

func (w *words) up() *direction   { return (*direction)(w[upAt : upAt+directionWords]) }
func (w *words) down() *direction { return (*direction)(w[downAt : downAt+directionWords]) }

// histogramWords are the buckets and the sum.
const histogramWords = maxBuckets + 1

func (w *words) connect() *histogram { return (*histogram)(w[connectAt : connectAt+histogramWords]) }
func (w *words) firstByte() *histogram {
	return (*histogram)(w[firstByteAt : firstByteAt+histogramWords])
}
func (w *words) duration() *histogram { return (*histogram)(w[durationAt : durationAt+histogramWords]) }

// volumeWords are the bytes and datagrams of a volume.
const volumeWords = 2

// volume is a Volume in words.
type volume [volumeWords]atomic.Int64

func (w *words) reportedUp() *volume { return (*volume)(w[reportedAt : reportedAt+volumeWords]) }
func (w *words) reportedDown() *volume {
	return (*volume)(w[reportedAt+volumeWords : reportedAt+2*volumeWords])
}

// endedPrefix is what the names of all words that count ended flows begin with.
const endedPrefix = "ended."

// Layout returns the layout of the counters' table.
func Layout() counts.Layout {
	names := make([]string, 0, seriesWords)
	add := func(list ...string) { names = append(names, list...) }
	add("begun", "moved-in", "moved-out", "attempts", "failures", "retries")
	for i := range numCauses {
		add(endedPrefix + relay.Cause(i).String())
	}
	for i := range spec.NumReasons {
		add("reasons." + nameOr(i.String(), "none"))
	}
	for _, name := range spec.Protocols {
		add("protocols." + name)
	}
	add("protocols.unknown")
	for _, d := range []string{"up.", "down."} {
		add(d+"bytes", d+"datagrams", d+"dropped", d+"datagrams-dropped")
		for i := range numPaths {
			add(d + "paths." + nameOr(datapath.Path(i).String(), "none"))
		}
		for i := range numWhys {
			add(d + "whys." + nameOr(datapath.Why(i).String(), "none"))
		}
	}
	for _, h := range []struct {
		name   string
		bounds []time.Duration
	}{{"connect.", connectBounds}, {"first-byte.", connectBounds}, {"duration.", durationBounds}} {
		for i := range maxBuckets {
			switch {
			case i < len(h.bounds):
				add(h.name + "le." + h.bounds[i].String())
			case i == len(h.bounds):
				add(h.name + "le.inf")
			default:
				add(h.name + "unused." + strconv.Itoa(i))
			}
		}
		add(h.name + "sum")
	}
	for i := range NumSizes {
		add(sizeName(i))
	}
	add("reported.up.bytes", "reported.up.datagrams", "reported.down.bytes", "reported.down.datagrams")
	return counts.Layout{Name: "series", Words: names, Key: maxKey, Rows: 2 * maxSeries}
}

func nameOr(name, def string) string {
	if name == "" {
		return def
	}
	return name
}

// maxKey is the length of the longest key: three names of the configuration, and the name of a
// member, which may be an address URL with a path or a name of DNS.
const maxKey = 504

// encode returns the key as the table has it: each name after its length.
func (k *Key) encode() string {
	var b []byte
	for _, s := range [...]string{k.Listener, k.Route, k.Group, k.Member} {
		b = append(binary.AppendUvarint(b, uint64(len(s))), s...)
	}
	return string(b)
}

// decodeKey is the inverse of Key.encode.
func decodeKey(text string) (k Key, ok bool) {
	b := []byte(text)
	for _, s := range [...]*string{&k.Listener, &k.Route, &k.Group, &k.Member} {
		n, used := binary.Uvarint(b)
		if used <= 0 || n > uint64(len(b)-used) {
			return Key{}, false
		}
		*s = string(b[used : used+int(n)])
		b = b[used+int(n):]
	}
	return k, len(b) == 0
}
