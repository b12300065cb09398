package config

import (
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// scalar returns the type of a value that is written as one string or number, with its schema and
// parser. The tag is YAML's: !!str, !!int, !!float.
func scalar[V any](name, allowed string, schema map[string]any, parse func(text, tag string) (V, *fault)) typ[V] {
	s := &shape{name: name, allowed: allowed, schema: schema}
	return typ[V]{s, func(r *reader, n node, v *V) {
		if n.Kind != yaml.ScalarNode || n.Tag == "!!null" {
			r.fail(n.at, fault{problem: "is " + kindOf(n.tree), allowed: allowed})
			return
		}
		got, f := parse(n.Value, n.Tag)
		if f != nil && n.expanded && n.Tag != "!!str" {
			if s, fault := parse(n.Value, "!!str"); fault == nil {
				got, f, n.Tag = s, nil, "!!str"
			}
		}
		if f == nil {
			*v = got
			return
		}
		if f.allowed == "" {
			f.allowed = allowed
		}
		r.fail(n.at, *f)
	}, func(v V) string { return fmt.Sprint(v) }}
}

func faultf(format string, args ...any) *fault { return &fault{problem: fmt.Sprintf(format, args...)} }

// notString returns the fault of a value that is not a string.
func notString(text, tag string) *fault {
	if tag == "!!str" {
		return nil
	}
	f := faultf("%s is %s", quote(text), kindOf(&tree{Kind: yaml.ScalarNode, Tag: tag}))
	if tag == "!!int" || tag == "!!float" || tag == "!!bool" {
		f.problem += "; quote it to make it a string"
	}
	return f
}

// texts returns the type of strings with a pattern, which the schema and the reader share.
func texts[V any](name, allowed, pattern string, parse func(string) (V, *fault)) typ[V] {
	// Compiled when a value is read: a configuration uses few of the keys, and a repetition of up to 255 takes kilobytes.
	re := sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })
	return scalar(name, allowed, map[string]any{"type": "string", "pattern": pattern}, func(text, tag string) (v V, f *fault) {
		if f := notString(text, tag); f != nil {
			return v, f
		}
		if !re().MatchString(text) {
			if v, f = parse(text); f == nil {
				f = faultf("invalid %s %s", name, quote(text))
			}
			return v, f
		}
		return parse(text)
	}).shown(func(v V) string {
		if text := fmt.Sprint(v); text != "" {
			return plain(text)
		}
		return "none"
	})
}

// text returns the type of non-empty strings of up to most bytes on one line.
func text(name string, most int) typ[string] {
	allowed := fmt.Sprintf("a string of 1 to %d bytes without control characters", most)
	return texts(name, allowed, `^[^\x00-\x1f\x7f]+$`, func(s string) (string, *fault) {
		switch {
		case s == "":
			return "", faultf("is empty")
		case len(s) > most:
			return "", faultf("%s has %d bytes", quote(s), len(s))
		}
		return s, nil
	})
}

const (
	namePattern = `^[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}$`
	allowedName = "a name of 1 to 63 letters, digits, _, . and -, not beginning with . or -"
)

var nameRE = regexp.MustCompile(namePattern)

// CheckName returns an error if s cannot be the name of a listener, group, route or member.
func CheckName(s string) error {
	if problem := checkName(s); problem != "" {
		return fmt.Errorf("%s; allowed: %s", problem, allowedName)
	}
	return nil
}

func checkName(s string) string {
	if !nameRE.MatchString(s) {
		return "invalid name " + quote(s)
	}
	return ""
}

var nameType = texts("name", allowedName, namePattern, func(s string) (string, *fault) { return s, nil })

// oneOf returns the type of a value that is one of the words.
func oneOf(words ...string) typ[string] {
	return choice(func(s string) string { return s }, words...)
}

// choice returns the type of a V that is written as one of the words.
func choice[V any](value func(string) V, words ...string) typ[V] {
	enum := make([]any, len(words))
	for i, w := range words {
		enum[i] = w
	}
	return scalar("word", strings.Join(words, ", "), map[string]any{"enum": enum}, func(text, _ string) (v V, f *fault) {
		for _, w := range words {
			if w == text {
				return value(w), nil
			}
		}
		return v, &fault{problem: "unknown value " + quote(text), near: suggest(text, words)}
	})
}

// boolean returns the type of true and false, which are read as yes and !yes.
func boolean(yes bool) typ[bool] {
	return scalar("boolean", "true, false", map[string]any{"type": "boolean"}, func(text, tag string) (bool, *fault) {
		switch {
		case tag == "!!bool" && strings.EqualFold(text, "true"):
			return yes, nil
		case tag == "!!bool" && strings.EqualFold(text, "false"):
			return !yes, nil
		}
		f := faultf("%s is neither true nor false", quote(text))
		switch strings.ToLower(text) {
		case "yes", "on", "y", "1", "true":
			f.near = "true"
		case "no", "off", "n", "0", "false":
			f.near = "false"
		}
		return false, f
	}).shown(func(b bool) string { return strconv.FormatBool(b == yes) })
}

// Durations.

const (
	durationPattern = `^([0-9]+(\.[0-9]+)?(ns|us|ms|s|m|h))+$`
	longest         = 8760 * time.Hour
)

var durationRE = regexp.MustCompile(durationPattern)

// duration returns the type of durations of at least least. If word is not empty, 0 is allowed
// too, and word is another way to write it.
func duration(least time.Duration, word string) typ[time.Duration] {
	allowed := "a number with a unit such as 500ms, 30s, 5m or 1h"
	forms := []any{map[string]any{"type": "string", "pattern": durationPattern}}
	if least > time.Millisecond || word == "" {
		allowed += ", at least " + brief(least)
	}
	switch word {
	case "":
	case "0":
		allowed += ", or 0"
		forms = append(forms, map[string]any{"const": 0})
	default:
		allowed += ", or " + word
		forms = append(forms, map[string]any{"enum": []any{0, word}})
	}
	return scalar("duration", allowed, map[string]any{"anyOf": forms}, func(text, tag string) (time.Duration, *fault) {
		if word != "" && (text == "0" || text == word) {
			return 0, nil
		}
		if tag == "!!int" || tag == "!!float" {
			return 0, &fault{problem: quote(text) + " has no unit", near: text + "s"}
		}
		d, err := time.ParseDuration(text)
		switch {
		case tag != "!!str" || err != nil || !durationRE.MatchString(text):
			near := nearDuration(text)
			if near == "" {
				near = suggest(text, []string{word})
			}
			return 0, &fault{problem: "invalid duration " + quote(text), near: near}
		case d == 0 && word != "":
			return 0, nil
		case d < max(least, 1):
			return 0, faultf("%s is too short", quote(text))
		case d > longest:
			return 0, &fault{problem: quote(text) + " is too long", allowed: allowed + ", at most 8760h"}
		}
		return d, nil
	}).shown(func(d time.Duration) string {
		if d == 0 {
			return word
		}
		return brief(d)
	})
}

// brief writes a duration without trailing zeros: 1m, not 1m0s.
func brief(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// Numbers.

// whole returns the type of whole numbers in a range.
func whole[V ~int | ~uint8 | ~uint16 | ~uint32](least, most int64) typ[V] {
	allowed := fmt.Sprintf("a whole number from %d to %d", least, most)
	schema := map[string]any{"type": "integer", "minimum": least, "maximum": most}
	return scalar("number", allowed, schema, func(text, tag string) (V, *fault) {
		n, err := strconv.ParseInt(text, 0, 64)
		switch {
		case tag == "!!str" && err == nil:
			return 0, faultf("%s is a string; remove the quotes to make it a number", quote(text))
		case tag != "!!int":
			return 0, faultf("%s is not a whole number", quote(text))
		case err != nil && !errors.Is(err, strconv.ErrRange):
			return 0, faultf("%s is not a plainly written whole number", quote(text))
		case err != nil || n < least || n > most:
			return 0, faultf("%s is out of range", quote(text))
		}
		return V(n), nil
	})
}

// count returns the type of whole numbers from 0 to most.
func count(most int64) typ[int] { return whole[int](0, most) }

const maxCount = 1 << 30

// share is a number from 0 to 1, and someShare one that is not 0.
var (
	share     = shareFrom("share", 0)
	someShare = shareFrom("part", 0.01)
)

func shareFrom(name string, least float64) typ[float64] {
	return scalar(name, fmt.Sprintf("a number from %v to 1", least), map[string]any{"type": "number", "minimum": least, "maximum": 1}, func(text, tag string) (float64, *fault) {
		x, err := strconv.ParseFloat(text, 64)
		if tag != "!!int" && tag != "!!float" || err != nil {
			f := faultf("%s is not a number", quote(text))
			if percent, ok := strings.CutSuffix(text, "%"); ok {
				if x, err := strconv.ParseFloat(percent, 64); err == nil && x >= 100*least && x <= 100 {
					f.near = strconv.FormatFloat(x/100, 'g', -1, 64)
				}
			}
			return 0, f
		}
		if !(x >= least && x <= 1) {
			return 0, faultf("%s is out of range", quote(text))
		}
		return x, nil
	})
}

// parseSize parses a number of bytes. The fault suggests the right spelling of a unit.
func parseSize(text string) (int64, *fault) {
	n, err := spec.ParseSize(text)
	var wrong *spec.SizeError
	switch {
	case err == nil:
		return n, nil
	case errors.As(err, &wrong) && wrong.Range:
		return 0, faultf("%s is out of range", quote(text))
	}
	return 0, &fault{problem: "invalid size " + quote(text), near: wrong.Near}
}

// size returns the type of numbers of bytes in a range.
func size(least, most int64) typ[int] {
	allowed := fmt.Sprintf("%d to %d bytes, as a number or with KiB, MiB or GiB", least, most)
	schema := map[string]any{"anyOf": []any{
		map[string]any{"type": "integer", "minimum": least, "maximum": most},
		map[string]any{"type": "string", "pattern": spec.SizePattern}}}
	return scalar("size", allowed, schema, func(text, tag string) (int, *fault) {
		if tag == "!!float" || tag == "!!bool" {
			return 0, faultf("invalid size %s", quote(text))
		}
		n, f := parseSize(text)
		if f == nil && (n < least || n > most) {
			f = faultf("%s is out of range", quote(text))
		}
		return int(n), f
	}).shown(func(n int) string { return spec.FormatSize(int64(n)) })
}

// bandwidth is a number of bytes per second.
var bandwidth = scalar("bandwidth", "a size per second such as 512KiB/s or 10MiB/s, at least 1KiB/s, or 0 for no limit", map[string]any{"anyOf": []any{
	map[string]any{"type": "string", "pattern": `^[0-9]+(KiB|MiB|GiB|TiB)/s$`}, map[string]any{"const": 0}}},
	func(text, tag string) (int64, *fault) {
		if text == "0" {
			return 0, nil
		}
		amount, ok := strings.CutSuffix(text, "/s")
		n, f := parseSize(amount)
		switch {
		case f != nil:
			f.problem = "invalid bandwidth " + quote(text)
			if f.near != "" {
				f.near += "/s"
			}
			if near := nearBandwidth(text); near != "" {
				f.near = near
			}
		case !strings.HasSuffix(amount, "B"):
			f = faultf("%s has no unit", quote(text))
		case !ok:
			f = &fault{problem: quote(text) + " has no time unit", near: amount + "/s"}
		case n < 1<<10 || n > 1<<40:
			f = faultf("%s is out of range", quote(text))
		}
		return n, f
	}).shown(func(n int64) string {
	if n == 0 {
		return "0"
	}
	return spec.FormatSize(n) + "/s"
})

const ratePattern = `^[0-9]+(\.[0-9]+)?/(s|m|h)$`

var rateRE = regexp.MustCompile(ratePattern)

// rate is a number per second.
var rate = scalar("rate", "a number per second, minute or hour such as 100/s, 30/m or 5/h, or 0 for no limit", map[string]any{"anyOf": []any{
	map[string]any{"type": "string", "pattern": ratePattern}, map[string]any{"const": 0}}},
	func(text, tag string) (float64, *fault) {
		if text == "0" {
			return 0, nil
		}
		if tag == "!!int" || tag == "!!float" {
			return 0, &fault{problem: quote(text) + " has no time unit", near: text + "/s"}
		}
		if !rateRE.MatchString(text) {
			return 0, faultf("invalid rate %s", quote(text))
		}
		number, unit, _ := strings.Cut(text, "/")
		x, err := strconv.ParseFloat(number, 64)
		if err != nil || x <= 0 || x > 1e9 {
			return 0, faultf("%s is out of range", quote(text))
		}
		return x / map[string]float64{"s": 1, "m": 60, "h": 3600}[unit], nil
	}).shown(func(x float64) string {
	if x == 0 {
		return "0"
	}
	return strconv.FormatFloat(x, 'g', 6, 64) + "/s"
})

// mode is permissions. It is a string because versions of YAML disagree about the number 0640.
var mode = scalar("mode", `quoted octal permissions such as "0640"`, map[string]any{"type": "string", "pattern": `^0?[0-7]{3}$`},
	func(text, tag string) (uint32, *fault) {
		n, err := strconv.ParseUint(text, 8, 32)
		if err != nil || n > 0o777 || len(text) < 3 || len(text) > 4 {
			return 0, faultf("invalid permissions %s", quote(text))
		}
		if f := notString(text, tag); f != nil {
			f.near = strconv.Quote(text)
			return 0, f
		}
		return uint32(n), nil
	}).shown(func(n uint32) string {
	if n == 0 {
		return "none"
	}
	return fmt.Sprintf(`"%04o"`, n)
})

// mark is a 32-bit number, in decimal or hexadecimal with 0x.
var mark = whole[uint32](0, math.MaxUint32)

// dscpNames are the names of the classes of RFC 2474 (cs), 2597 (af), 3246 (ef) and 8622 (le).
var dscpNames = func() []string {
	names := []string{"ef", "le"}
	for i := range 8 {
		names = append(names, fmt.Sprint("cs", i))
	}
	for class := 1; class <= 4; class++ {
		for drop := 1; drop <= 3; drop++ {
			names = append(names, fmt.Sprintf("af%d%d", class, drop))
		}
	}
	return names
}()

var dscp = scalar("dscp", "0 to 63, cs0 to cs7, af11 to af43, ef, le", map[string]any{"anyOf": []any{
	map[string]any{"type": "integer", "minimum": 0, "maximum": 63}, map[string]any{"enum": anys(dscpNames)}}},
	func(text, tag string) (uint8, *fault) {
		if n, err := strconv.ParseUint(text, 0, 8); err == nil && tag == "!!int" && n <= 63 {
			return uint8(n), nil
		}
		for _, name := range dscpNames {
			switch digits := name[2:]; {
			case name != text:
			case name == "ef":
				return 46, nil
			case name == "le":
				return 1, nil
			case name[0] == 'c':
				return (digits[0] - '0') * 8, nil
			default:
				return (digits[0]-'0')*8 + (digits[1]-'0')*2, nil
			}
		}
		return 0, &fault{problem: "unknown DSCP " + quote(text), near: suggest(text, dscpNames)}
	})

func anys(words []string) []any {
	list := make([]any, len(words))
	for i, w := range words {
		list[i] = w
	}
	return list
}

// status is an HTTP status or a range of them.
var status = scalar("status", "a status such as 204, or a range such as 200-399", map[string]any{"anyOf": []any{
	map[string]any{"type": "integer", "minimum": 100, "maximum": 599},
	map[string]any{"type": "string", "pattern": `^[1-5][0-9][0-9](-[1-5][0-9][0-9])?$`}}},
	func(text, _ string) (s [2]int, f *fault) {
		low, high, ranged := strings.Cut(text, "-")
		if !ranged {
			high = low
		}
		a, err1 := strconv.Atoi(low)
		b, err2 := strconv.Atoi(high)
		if err1 != nil || err2 != nil || len(low) != 3 || len(high) != 3 || a < 100 || b > 599 {
			return s, faultf("invalid HTTP status %s", quote(text))
		}
		if a > b {
			return s, &fault{problem: quote(text) + " ends before it begins", near: high + "-" + low}
		}
		return [2]int{a, b}, nil
	}).shown(func(s [2]int) string {
	if s[0] == s[1] {
		return strconv.Itoa(s[0])
	}
	return fmt.Sprintf("%d-%d", s[0], s[1])
})

// octetString is octets, kept in a string.
func octetString(most int) typ[string] {
	of := octets(most)
	return typ[string]{of.shape, func(r *reader, n node, s *string) {
		var b []byte
		of.read(r, n, &b)
		*s = string(b)
	}, quote}
}

// octets returns the type of byte strings: a string, or hex: and hexadecimal digits.
func octets(most int) typ[[]byte] {
	allowed := fmt.Sprintf("a string, or hex: and pairs of hexadecimal digits; up to %d bytes", most)
	return scalar("octets", allowed, map[string]any{"type": "string", "minLength": 1}, func(text, tag string) ([]byte, *fault) {
		if f := notString(text, tag); f != nil {
			return nil, f
		}
		b := []byte(text)
		if digits, ok := strings.CutPrefix(text, "hex:"); ok {
			var err error
			if b, err = hex.DecodeString(digits); err != nil {
				return nil, faultf("%s does not consist of pairs of hexadecimal digits", quote(text))
			}
		}
		if len(b) == 0 {
			return nil, faultf("is empty")
		}
		if len(b) > most {
			return nil, faultf("has %d bytes", len(b))
		}
		return b, nil
	}).shown(func(b []byte) string { return quote(string(b)) })
}
