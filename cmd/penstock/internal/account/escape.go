package account

import "unicode/utf8"

const hex = "0123456789abcdef"

// A value is first appended as it is, and then escaped in place, for almost none
// needs it. What is escaped is built behind the value and moved over it.

// escapeJSON makes b[from:] the inside of a JSON string (RFC 8259, section 7).
// Control characters of every kind are escaped, those of C1 too, which some terminals
// obey; bytes that are no UTF-8 become U+FFFD.
func escapeJSON(b []byte, from int) []byte {
	i := from
	for i < len(b) && plain(b[i]) {
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
			case plain(c):
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
	return over(b, i, end)
}

// escapeText makes b[from:] printable ASCII without quotes and backslashes:
// everything else becomes \xHH.
func escapeText(b []byte, from int) []byte {
	i := from
	for i < len(b) && plain(b[i]) {
		i++
	}
	if i == len(b) {
		return b
	}
	end := len(b)
	for j := i; j < end; j++ {
		if c := b[j]; plain(c) {
			b = append(b, c)
		} else {
			b = append(b, '\\', 'x', hex[c>>4], hex[c&15])
		}
	}
	return over(b, i, end)
}

// plain tells whether c is printable ASCII that nothing must be done to.
func plain(c byte) bool { return plains[c] }

var plains = func() (t [256]bool) {
	for c := ' '; c < 0x7f; c++ {
		t[c] = c != '"' && c != '\\'
	}
	return t
}()

// over moves b[end:] to b[at:].
func over(b []byte, at, end int) []byte {
	n := copy(b[at:], b[end:])
	return b[:at+n]
}
