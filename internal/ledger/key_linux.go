package ledger

// KeyKind is the highest byte of the first word of the key under which a ledger is held.
const KeyKind = 1

// KeyLoop returns the loop whose ledger is held under a key. It reports false if something else is.
func KeyLoop(key [2]uint64) (loop int, ok bool) {
	return int(key[0] >> 48 & 0xff), key[0]>>56 == KeyKind
}
