package config

import (
	"errors"
	"fmt"
	"strings"
)

// Message returns the message for a person about a configuration that cannot be used: one line for each of its errors.
func Message(err error) string {
	var errs Errors
	if errors.As(err, &errs) {
		return errs.Error()
	}
	return "penstock: " + strings.ReplaceAll(err.Error(), "\n", " ")
}

// OneLine returns the same on one line, which may be a part of another message.
func OneLine(err error) string {
	return PlainLine(strings.ReplaceAll(strings.TrimPrefix(Message(err), "penstock: "), "\n", "; "))
}

// PlainLine returns a text without control characters.
func PlainLine(s string) string {
	return strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f {
			return ' '
		}
		return c
	}, s)
}

// Counted returns a number of things: 1 member, 2 members.
func Counted(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return fmt.Sprintf("%d %s", n, thing)
}
