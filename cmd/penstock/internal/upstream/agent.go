package upstream

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
)

// agentSays is what a member's agent says in a line, or has said in several: the words of HAProxy's agent-check. What a line does
// not mention stays as it was. The zero value says nothing.
type agentSays struct {
	mode     Mode   // Enable: ready; Drain; Disable: maint
	hasShare bool   // of the configured weight
	share    int    // in percent
	hasLimit bool   // of open flows
	limit    int    // 0: none
	health   string // up, down, fail, stopped
	reason   string // of health
}

// The words of an agent.
var (
	agentModes  = [...]string{Enable: "ready", Drain: "drain", Disable: "maint"}
	agentHealth = [...]string{"up", "down", "fail", "stopped"}
)

// Bounds of what agents say.
const (
	maxAgentLine   = 4096  // bytes
	maxAgentShare  = 25600 // percent: of the weight 1, the largest one
	maxAgentReason = 200   // bytes that are kept
)

// parseAgent reads a line without its end. If it has an unknown word, parseAgent returns an error that names the first one, besides
// what the other words say.
func parseAgent(line string) (says agentSays, err error) {
	words, reason, explained := strings.Cut(line, "#")
	for word := range strings.FieldsFuncSeq(words, func(r rune) bool { return r == ' ' || r == '\t' || r == ',' }) {
		if !says.add(strings.ToLower(word)) && err == nil {
			err = fmt.Errorf("the agent says %.40q; allowed: up, down, fail, stopped, ready, drain, maint, a percentage, maxconn:N", word)
		}
	}
	if explained && says.health != "" {
		says.reason = oneLine(reason)
	}
	return says, err
}

// add adds what a word says, and reports whether it is one.
func (a *agentSays) add(word string) bool {
	for _, health := range agentHealth {
		if word == health {
			a.health = word
			return true
		}
	}
	for mode, name := range agentModes {
		if word == name && name != "" {
			a.mode = Mode(mode)
			return true
		}
	}
	if digits, ok := strings.CutSuffix(word, "%"); ok {
		if share, ok := agentNumber(digits, maxAgentShare); ok {
			a.hasShare, a.share = true, share
			return true
		}
	}
	if digits, ok := strings.CutPrefix(word, "maxconn:"); ok {
		if limit, ok := agentNumber(digits, 1<<30); ok {
			a.hasLimit, a.limit = true, limit
			return true
		}
	}
	return false
}

// agentNumber reads a number; one that is larger than most is most.
func agentNumber(digits string, most int) (int, bool) {
	if digits == "" || strings.Trim(digits, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.Atoi(digits)
	if err != nil || n > most {
		n = most
	}
	return n, true
}

// oneLine returns what people can read of a text that comes from outside, as one line that is not long.
func oneLine(s string) string {
	s = strings.TrimSpace(strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, " ")))
	if len(s) > maxAgentReason {
		s = strings.ToValidUTF8(s[:maxAgentReason], "")
	}
	return strings.TrimSpace(s)
}

// merge adds what a later line says.
func (a *agentSays) merge(later agentSays) {
	if later.mode != AsFile {
		a.mode = later.mode
	}
	if later.hasShare {
		a.hasShare, a.share = true, later.share
	}
	if later.hasLimit {
		a.hasLimit, a.limit = true, later.limit
	}
	if later.health != "" {
		a.health, a.reason = later.health, later.reason
	}
}

// String returns a line that says the same.
func (a agentSays) String() string {
	var words []string
	if a.mode != AsFile {
		words = append(words, agentModes[a.mode])
	}
	if a.hasShare {
		words = append(words, strconv.Itoa(a.share)+"%")
	}
	if a.hasLimit {
		words = append(words, "maxconn:"+strconv.Itoa(a.limit))
	}
	if a.health != "" {
		words = append(words, a.health)
	}
	if a.reason != "" {
		words = append(words, "# "+a.reason)
	}
	return strings.Join(words, " ")
}

// why returns the reason of a state that follows from it.
func (a *agentSays) why() string { return "its agent says " + a.String() }

// down reports whether the member gets no flows because of its health.
func (a *agentSays) down() bool { return a.health != "" && a.health != "up" }

// zero reports whether the member's share of the weight is zero, so that it gets no new flows.
func (a *agentSays) zero() bool { return a.hasShare && a.share == 0 }

// of returns the share of a weight, 1 to 256.
func (a *agentSays) of(weight int) int {
	if !a.hasShare {
		return weight
	}
	return min(max(1, weight*a.share/100), 256)
}
