package config

import (
	"strings"
	"testing"
)

// What people write first that is not YAML is said in our words, at its place.
func TestSlips(t *testing.T) {
	for text, want := range map[string]string{
		"listeners:\n\tl: {listen: tcp://:1}\n":                            "2:1: a tab in the indentation; allowed: spaces; YAML has no tabs there",
		"listeners:\n  l:\n    listen: tcp://:1\n  \tto: a\n":              "4:3: a tab in the indentation; allowed: spaces; YAML has no tabs there",
		"l:\n  é:\n    - sni: *.a.example\n      to: b\n":                  `3:12: a value that begins with * is an alias in YAML (did you mean "*.a.example"?); allowed: such a value in quotes`,
		"l:\n  - {é: b, sni: *.a.example, to: b}\n":                        `2:17: a value that begins with * is an alias in YAML (did you mean "*.a.example"?); allowed: such a value in quotes`,
		"l:\n  - sni: [*.a.example]\n":                                     `2:11: a value that begins with * is an alias in YAML (did you mean "*.a.example"?); allowed: such a value in quotes`,
		"l:\n  sni: *\n":                                                   `2:8: a value that begins with * is an alias in YAML (did you mean "*"?); allowed: such a value in quotes`,
		"l:\n  <<: *base\n":                                                "2:7: no anchor &base comes before this alias; allowed: an alias of an anchor, or a value in quotes",
		"g: {members: [tcp://h:${PORT}]}\n":                                `1:24: inside of [...] and {...}, a value with ${ ends at its brace (did you mean "tcp://h:${PORT}"?); allowed: such a value in quotes`,
		"g: {members: [tcp://${HOST}:1], b: 2}\n":                          `1:22: inside of [...] and {...}, a value with ${ ends at its brace (did you mean "tcp://${HOST}:1"?); allowed: such a value in quotes`,
		"g:\n  members: [\n    tcp://h:1,\n    tcp://h:${PORT:-1},\n  ]\n": `4:14: inside of [...] and {...}, a value with ${ ends at its brace (did you mean "tcp://h:${PORT:-1}"?); allowed: such a value in quotes`,
		"engine: {loops: ${N}}\n":                                          `1:18: inside of [...] and {...}, a value with ${ ends at its brace (did you mean "${N}"?); allowed: such a value in quotes`,
		"a: @x\n":                                                          "1:4: a value cannot begin with @ in YAML (did you mean \"@x\"?); allowed: such a value in quotes",
		"a: b: c\n":                                                        `1:5: a key where none can be; allowed: keys of one mapping with the same indentation, and values that contain ": " in quotes`,
		"# c\na: \xff\n":                                                   "2:4: the byte 0xFF is not UTF-8; allowed: a text in UTF-8",
		"# c\nb: c\nx: a\x00b\n":                                           `3:5: the control character U+0000; allowed: a text without it; in double quotes "\n" and "\x00" stand for such characters`,
		"a: \"x\nb: c\n":                                                   "invalid YAML: found unexpected end of stream, while scanning a quoted scalar that begins at line 1",
	} {
		_, err := Parse("f", []byte(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q:\n got %v\nwant %s", text, err, want)
		}
	}
}

// Each tab, and each character that YAML does not have, is found where it is.
func FuzzSlips(f *testing.F) {
	f.Add([]byte("listeners:\n\tl: {}\n"), 2, 1)
	f.Add([]byte("a: *.b\n"), 1, 4)
	f.Add([]byte("a: [${B}]\n"), 1, 6)
	f.Add([]byte("é: \xff\n"), 0, 0)
	f.Fuzz(func(t *testing.T, text []byte, line, col int) {
		if l, c, f := badCharacter(text); f != nil && (l < 1 || c < 1 || l > strings.Count(string(text), "\n")+1) {
			t.Errorf("%d:%d of %q", l, c, text)
		}
		if l, c, f := slip(text, line, col); f != nil && (l != line || c < 1 || f.problem == "") {
			t.Errorf("%d:%d of %q: %+v", l, c, text, f)
		}
	})
}
