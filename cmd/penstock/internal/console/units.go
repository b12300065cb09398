package console

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// volume formats a number of bytes with a unit and two to four digits: 512 B, 1.5 KiB,
// 117 MiB.
func volume(n float64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}
	i := 0
	// A value that would be rounded up to 1024 gets the next unit.
	for ; n >= 1023.5 && i < len(units)-1; i++ {
		n /= 1024
	}
	switch {
	case i == 0 || n >= 99.95:
		return fmt.Sprintf("%.0f %s", n, units[i])
	default:
		return fmt.Sprintf("%.1f %s", n, units[i])
	}
}

// rate formats bytes per second.
func rate(n float64) string { return volume(n) + "/s" }

// fixedRate formats a rate with a fixed width, so that columns do not move.
func fixedRate(n float64) string { return fmt.Sprintf("%10s", rate(n)) }

// count formats a number with thousands separators: 12,345.
func count(n int64) string {
	s := strconv.FormatInt(n, 10)
	start := 0
	if n < 0 {
		start = 1
	}
	for i := len(s) - 3; i > start; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// plural formats a count and its noun: 1 change, 2 changes.
func plural(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return count(n) + " " + noun + "s"
}

// perSecond formats a number per second: 0, 3.5, 12,345.
func perSecond(n float64) string {
	if n > 0 && n < 9.95 {
		return strconv.FormatFloat(n, 'f', 1, 64)
	}
	return count(int64(n + 0.5))
}

// age formats seconds in the two greatest units: 45s, 3m12s, 5h7m, 12d3h.
func age(seconds float64) string {
	s := int64(max(0, seconds))
	switch {
	case s < 60:
		return fmt.Sprintf("%ds", s)
	case s < 3600:
		return fmt.Sprintf("%dm%ds", s/60, s%60)
	case s < 86400:
		return fmt.Sprintf("%dh%dm", s/3600, s/60%60)
	}
	return fmt.Sprintf("%dd%dh", s/86400, s/3600%24)
}

// span formats seconds with three digits: 0, 85us, 1.2ms, 340ms. From ten seconds on it
// formats them like age.
func span(seconds float64) string {
	switch {
	case seconds <= 0:
		return "0"
	case seconds >= 10:
		return age(seconds)
	case seconds >= 0.9995:
		return trim(seconds) + "s"
	case seconds >= 0.0009995:
		return trim(seconds*1e3) + "ms"
	}
	return trim(seconds*1e6) + "us"
}

// trim formats n with three digits, without trailing zeros of a fraction.
func trim(n float64) string {
	s := strconv.FormatFloat(n, 'f', 2, 64)
	switch {
	case n >= 99.95:
		return strconv.FormatFloat(n, 'f', 0, 64)
	case n >= 9.995:
		s = strconv.FormatFloat(n, 'f', 1, 64)
	}
	return strings.TrimSuffix(strings.TrimRight(s, "0"), ".")
}

// percent formats a share of 1.
func percent(share float64) string { return fmt.Sprintf("%.0f%%", 100*share) }

// clock formats the local time of day.
func clock(t time.Time) string { return t.Local().Format("15:04:05") }

// dash returns s, or a dash if s is empty.
func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
