package convert

import (
	"strings"
	"sync"
)

// Silent are words of one product that change nothing here, with the reason. Whatever is neither
// here nor converted is listed, so that nothing is left out without a word.
type Silent struct {
	Why   string
	Words map[string]string // by where they are: words that begin a line, or options of one
}

// WordsOf returns a function that reports whether a word is in the list. The list is read at its first call.
func WordsOf(list []Silent) func(where, word string) bool {
	all := sync.OnceValue(func() map[string]bool {
		all := map[string]bool{}
		for _, s := range list {
			for where, words := range s.Words {
				for word := range strings.FieldsSeq(words) {
					all[where+" "+word] = true
				}
			}
		}
		return all
	})
	return func(where, word string) bool { return all()[where+" "+word] }
}
