// Package enum converts values of small integer types to names and back. A list holds the name of
// each value at its index.
package enum

import (
	"fmt"
	"slices"
	"strings"
)

// Unknown is the name of values that have none.
const Unknown = "unknown"

// Name returns the name of v, or [Unknown] if it has none.
func Name[T ~uint8](names []string, v T) string {
	if int(v) < len(names) {
		return names[v]
	}
	return Unknown
}

// Set sets *v to the value that text names. On an error, *v is unchanged; the error lists the names
// that are allowed.
func Set[T ~uint8](v *T, kind string, names []string, text []byte) error {
	i := slices.Index(names, string(text))
	if i < 0 {
		known := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return name == "" })
		return fmt.Errorf("unknown %s %q; known: %s", kind, text, strings.Join(known, ", "))
	}
	*v = T(i)
	return nil
}
