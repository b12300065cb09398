package spec

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
)

// SizePattern is the regular expression of a size with a unit.
const SizePattern = `^[0-9]+(KiB|MiB|GiB|TiB)$`

// sizeUnits are the units of sizes, smallest first. Each is 1024 times the one before.
var sizeUnits = []string{"", "KiB", "MiB", "GiB", "TiB"}

// looseSize matches sizes with common misspellings of a unit.
var looseSize = regexp.MustCompile(`^([0-9]+) ?([kKmMgGtT]?)(i?)([bB]?)$`)

// SizeError is the error of ParseSize.
type SizeError struct {
	Text  string
	Near  string // the same size with the right spelling of the unit; empty if unknown
	Range bool   // the size is too large
}

func (e *SizeError) Error() string {
	if e.Range {
		return fmt.Sprintf("size %q is out of range", e.Text)
	}
	return fmt.Sprintf("invalid size %q", e.Text)
}

// ParseSize parses a size in bytes: a decimal number, optionally followed by KiB, MiB, GiB or
// TiB, without a blank. It is the only grammar of sizes, for the configuration and for the
// command line. The error is a *SizeError.
func ParseSize(text string) (int64, error) {
	m := looseSize.FindStringSubmatch(text)
	if m == nil {
		return 0, &SizeError{Text: text}
	}
	unit, shift := "", 0
	if i := strings.Index("KMGT", strings.ToUpper(m[2])); m[2] != "" {
		unit, shift = sizeUnits[i+1], 10*(i+1)
	}
	n, err := strconv.ParseInt(m[1], 10, 64)
	if err != nil || n > math.MaxInt64>>shift {
		return 0, &SizeError{Text: text, Range: true}
	}
	if right := m[1] + unit; text != right {
		return 0, &SizeError{Text: text, Near: right}
	}
	return n << shift, nil
}

// FormatSize returns the shortest text that ParseSize parses as n, which is not negative.
func FormatSize(n int64) string {
	i := 0
	for n > 0 && n%1024 == 0 && i < len(sizeUnits)-1 {
		n /= 1024
		i++
	}
	return strconv.FormatInt(n, 10) + sizeUnits[i]
}
