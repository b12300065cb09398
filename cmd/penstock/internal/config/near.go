package config

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// What values that other products take were probably meant to be.

// nearURL returns the URL that an address without a scheme, or with another sign for all addresses,
// stands for; "": none that is one.
func nearURL(s string, parse func(string) (spec.Endpoint, error)) string {
	url := s
	if !strings.Contains(s, "://") {
		url = "tcp://" + s
		if port, err := strconv.ParseUint(s, 10, 16); err == nil {
			url = fmt.Sprintf("tcp://:%d", port)
		}
	}
	url = strings.Replace(url, "://*:", "://:", 1)
	if strings.HasPrefix(s, "/") {
		url = "unix://" + s
	}
	if _, err := parse(url); url == s || err != nil {
		return ""
	}
	return url
}

// longUnits are units of time that Go does not have, and longer words for those that it has.
var longUnits = map[string]time.Duration{
	"msec": time.Millisecond, "millisecond": time.Millisecond, "sec": time.Second, "second": time.Second, "min": time.Minute, "minute": time.Minute,
	"hr": time.Hour, "hour": time.Hour, "d": 24 * time.Hour, "day": 24 * time.Hour, "w": 7 * 24 * time.Hour, "week": 7 * 24 * time.Hour,
}

var numberAndWord = regexp.MustCompile(`^([0-9]{1,6}) ?([A-Za-z]+)(?:/s(?:ec)?)?$`)

// nearDuration returns how a time such as 1d or 30 sec is written; "": it is none.
func nearDuration(text string) string {
	m := numberAndWord.FindStringSubmatch(text)
	if m == nil {
		return ""
	}
	unit, ok := longUnits[strings.ToLower(m[2])]
	if !ok {
		unit = longUnits[strings.TrimSuffix(strings.ToLower(m[2]), "s")]
	}
	if short, err := time.ParseDuration("1" + m[2]); unit == 0 && err == nil {
		unit = short // 30 s
	}
	n, _ := strconv.Atoi(m[1])
	if unit == 0 || n == 0 || time.Duration(n) > longest/unit {
		return ""
	}
	return brief(time.Duration(n) * unit)
}

// bitUnits are units of bits per second, in bits.
var bitUnits = map[string]int64{
	"kbit": 1e3, "kbps": 1e3, "kb": 1e3, "mbit": 1e6, "mbps": 1e6, "mb": 1e6, "gbit": 1e9, "gbps": 1e9, "gb": 1e9,
}

// nearBandwidth returns how a number of bits per second is written, in whole KiB; "": it is none.
func nearBandwidth(text string) string {
	m := numberAndWord.FindStringSubmatch(text)
	if m == nil || strings.HasSuffix(m[2], "B") { // bytes
		return ""
	}
	n, _ := strconv.ParseInt(m[1], 10, 64)
	if k := n * bitUnits[strings.ToLower(m[2])] / 8 / 1024; k > 0 {
		return fmt.Sprintf("%dKiB/s", k)
	}
	return ""
}
