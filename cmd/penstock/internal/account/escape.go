package account

import "unicode/utf8"

const hex = "0123456789abcdef"

// A value is appended as it is and then escaped in place, because few values need
// escaping. The escaped text is built after the value and then moved over it.

// escapeJSON escapes b[from:] for use inside a JSON string (RFC 8259, section 7).
// It escapes all control characters, including those of C1, which some terminals
// obey. Bytes that are not valid UTF-8 become U+FFFD.
func escapeJSON(b []byte, from int) []byte {
	i := from
	for i < len(b) && printable(b[i]) {
		i++
	}
	if i == len(b) {
		return b
	}
	end := len(b)
	for j := i; j < end; {
		c := b[j]
		if c < utf8.RuneSelf {
			j++
			switch {
			case printable(c):
				b = append(b, c)
			case c == '"' || c == '\\':
				b = append(b, '\\', c)
			default:
				b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
			}
			continue
		}
		r, n := utf8.DecodeRune(b[j:end])
		switch {
		case r == utf8.RuneError && n == 1:
			b = append(b, `\ufffd`...)
		case r < 0xa0:
			b = append(b, '\\', 'u', '0', '0', hex[r>>4], hex[r&15])
		default:
			b = append(b, b[j:j+n]...)
		}
		j += n
	}
	return replaceTail(b, i, end)
}

// escapeText escapes b[from:] as printable ASCII without quotes and backslashes.
// Every other byte becomes \xHH.
func escapeText(b []byte, from int) []byte {
	i := from
	for i < len(b) && printable(b[i]) {
		i++
	}
	if i == len(b) {
		return b
	}
	end := len(b)
	for j := i; j < end; j++ {
		if c := b[j]; printable(c) {
			b = append(b, c)
		} else {
			b = append(b, '\\', 'x', hex[c>>4], hex[c&15])
		}
	}
	return replaceTail(b, i, end)
}

// printable reports whether c is printable ASCII that needs no escaping.
func printable(c byte) bool { return printableTable[c] }

var printableTable = func() (t [256]bool) {
	for c := ' '; c < 0x7f; c++ {
		t[c] = c != '"' && c != '\\'
	}
	return t
}()

// replaceTail moves b[end:] to b[at:].
func replaceTail(b []byte, at, end int) []byte {
	n := copy(b[at:], b[end:])
	return b[:at+n]
}
