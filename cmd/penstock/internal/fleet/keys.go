package fleet

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// The names of the keys below the fleet's key. The types that are stored there say what they hold.

func nodesPrefix(key string) string     { return key + "/nodes/" }
func nodeKey(key, node string) string   { return nodesPrefix(key) + node }
func conflictsPrefix(key string) string { return key + "/conflicts/" }

func ordersPrefix(key string) string           { return key + "/orders/" }
func nodeOrdersPrefix(key, node string) string { return ordersPrefix(key) + node + "/" }
func answersPrefix(key, order string) string   { return key + "/answers/" + order + "/" }
func answerKey(key, order, node string) string { return answersPrefix(key, order) + node }
func drainKey(key, node string) string         { return nodeOrdersPrefix(key, node) + drainName }
func drainsKey(key string) string              { return key + "/drains" }
func logPrefix(key string) string              { return key + "/log/" }
func checkersPrefix(key string) string         { return key + "/checkers/" }
func checksPrefix(key string) string           { return key + "/checks/" }

// drainName is the name of the order that stays.
const drainName = "drain"

// newID returns an id that nobody else has.
func newID() string { return fmt.Sprintf("%016x", rand.Uint64()) }

// below returns the part of a key after a prefix, and reports whether it has no further part.
func below(key, prefix string) (name string, ok bool) {
	name, ok = strings.CutPrefix(key, prefix)
	return name, ok && name != "" && !strings.Contains(name, "/")
}
