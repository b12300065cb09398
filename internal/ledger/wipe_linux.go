package ledger

// Wipe makes memory in which a ledger was that of a new file again, for simulations that lend it: it clears what was used, and of the blocks,
// whose contents are arbitrary, the first ones only.
func Wipe(mem []byte) {
	h, err := readHeader(mem, int64(len(mem)))
	if err != nil {
		clear(mem[:headerSize])
		return
	}
	l := newLedger(nil, -1, mem, h)
	used := min(max(l.word(topAt), wipeRecords), h.slots) * h.stride
	clear(h.strings.of(mem)[:min(l.word(stringsAt), h.strings.size)])
	clear(h.records.of(mem)[:used])
	clear(h.arena.of(mem)[:min(wipeBlocks, h.arena.size)])
	for _, p := range []part{{0, headerSize}, h.turn, h.stats, h.scratch} {
		clear(p.of(mem))
	}
}

const (
	wipeRecords = 256 // as many may have been begun and not published
	wipeBlocks  = 4 * MaxBlock
)
