package relay

import "fmt"

// AnswerError is the error of an attempt whose upstream does not answer as [Flow.Expect] says.
type AnswerError struct {
	// Got is what has come, up to one byte more than was expected. If it is the beginning of that, or
	// empty, the upstream has ended its side.
	Got []byte
}

// Error says what has come instead.
func (e *AnswerError) Error() string {
	if len(e.Got) == 0 {
		return "relay: the upstream ended its side instead of answering"
	}
	return fmt.Sprintf("relay: the upstream answered %.64q", e.Got)
}
