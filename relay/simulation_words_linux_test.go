package relay

import (
	"bytes"
	"errors"
	"fmt"
	"time"
)

// What is said before a flow relays, in a simulation: something in front of what its client sends ([Flow.Preface]), what the upstream has to
// answer to that ([Flow.Expect]), and what the client is told ([Flow.Reply]).
//
//	client ◀── replies ── relay ── preface ──▶ upstream
//	                            ◀── answer ──
//
// The first upstream of some flows answers otherwise, and the next one has to do. None sends anything else before it has got a byte of the client.

// simWords are what is said of a flow.
type simWords struct {
	preface int       // bytes in front of those of the client, at each upstream that is connected to
	answer  int       // bytes that the upstream has to answer; 0: it need not
	rude    int       // how the first upstream answers: see rudely; 0: as it should
	reply   [4]int    // bytes to the client: while it is sniffed, when its upstream is chosen, is connected, and has answered
	owed    []byte    // what the upstream has still to answer
	asked   bool      // it has got all of the preface
	refused bool      // it has answered otherwise
	rudes   int       // how many have
	told    bool      // the client has been sent replies
	over    bool      // and has begun, so that there is nothing more to say
	front   [2][]byte // by direction: what has to arrive in front of the other side's bytes
}

const (
	replySniffed = iota
	replyChosen
	replyConnected
	replyAnswered
)

// The directions whose texts words are.
const (
	textPreface = 2 + iota
	textAnswer
	textReply
)

// What is counted as said.
const (
	sayPreface, sayReply, sayAnswer = "a preface", "a reply", "an answer"
	sayRudely                       = "another answer: "
)

func drawWords(words, n int) (w simWords) {
	if words == 0 {
		return w
	}
	n += words
	w.preface = [...]int{0, 1, 12, 12, 700, 40_000}[n%6]
	if w.preface > 0 {
		w.answer = [...]int{0, 0, 1, 40, answerMost}[n/6%5]
	}
	if w.answer > 0 {
		w.rude = n / 30 % 8
	}
	w.reply[n%4] = [...]int{0, 0, 5, 12_000}[n/4%4]
	return w
}

// answers reports whether the upstream of a flow is expected to answer, and has got nothing of the client.
func (f *simFlow) answers() bool { return f.words.answer > 0 && f.half[up].got == 0 && !f.words.over }

// said reports whether there was anything to say.
func (f *simFlow) said() bool { return f.words.preface > 0 || f.words.told }

// prefaced has a flow whose upstream is connected say what it says there.
func (s *simulation) prefaced(f *Flow, x *simFlow) {
	w := &x.words
	if w.preface > 0 {
		s.seen.costs[sayPreface]++
		if err := f.Preface(prefaceOf(x)); err != nil {
			s.fail("preface: %v", err)
		}
	}
	if w.answer > 0 {
		if err := f.Expect(simBytes(x.id, textAnswer, 0, w.answer)); err != nil {
			s.fail("expect: %v", err)
		}
	}
}

// prefaceOf is what an upstream gets first. Its first byte says whose it is, as that of the client does.
func prefaceOf(f *simFlow) []byte {
	b := bytes.Clone(simBytes(f.id, textPreface, 0, f.words.preface))
	b[0] = simByte(f.id, up, 0)
	return b
}

// answered is called when an upstream has answered, or has not.
func (s *simulation) answered(f *Flow, _ []byte, _ time.Duration, err error) (more bool) {
	if x := s.flowOf(f); err == nil {
		s.seen.costs[sayAnswer]++
		s.reply(f, x, replyAnswered)
		if !x.words.asked || x.words.refused {
			s.fail("flow %d goes on, and its upstream has not answered as it should", x.id)
		}
	}
	return false
}

// reply has a hook tell the client something.
func (s *simulation) reply(f *Flow, x *simFlow, hook int) {
	b := simBytes(x.id, textReply, 0, x.words.reply[hook])
	if len(b) == 0 {
		return
	}
	s.seen.costs[sayReply]++
	w := &x.words
	before := *w
	w.told = true
	w.front[down] = append(w.front[down], b...) // the process may die when it has sent some of it
	switch err := f.Reply(b); {
	case errors.Is(err, errReplies): // the client does not take what it was told before
		w.told, w.front[down] = before.told, before.front[down]
	case err != nil:
		s.fail("reply: %v", err)
	}
}

// meets is called when an upstream has got the first byte.
func (s *simulation) meets(f *simFlow) {
	w := &f.words
	if w.preface == 0 {
		f.half[up].got = 1
		return
	}
	w.front[up] = prefaceOf(f)[1:]
	w.asked, w.owed, w.refused = false, nil, false
	s.ask(f)
}

// ask is called when an upstream has got something.
func (s *simulation) ask(f *simFlow) {
	w := &f.words
	if !f.answers() || w.asked || f.fd[sideUpstream] < 0 || len(w.front[up]) > 0 {
		return
	}
	w.asked, w.owed = true, simBytes(f.id, textAnswer, 0, w.answer)
	if s.slow && w.rude%4 == 2 {
		w.rude++ // what comes later is no part of the answer
	}
	if w.rude > 0 && w.rudes == 0 {
		s.seen.costs[fmt.Sprint(sayRudely, w.rude%4)]++
		w.owed, w.refused = rudely(w.rude, w.owed), true
		w.rudes++
	}
}

// rudely is what an upstream says that does not answer as it should. Nothing is the end of its side.
func rudely(how int, answer []byte) []byte {
	b := bytes.Clone(answer)
	switch how % 4 {
	case 0:
		b[len(b)-1]++
	case 1:
		b[0]++
	case 2:
		return append(b, 'x')
	default:
		return b[:len(b)/2]
	}
	return b
}

// say has an upstream send up to n bytes of its answer. It reports whether something was sent.
func (s *simulation) say(f *simFlow, n int) (some bool) {
	w, fd := &f.words, f.fd[sideUpstream]
	if !f.answers() || !w.asked || fd < 0 {
		return false
	}
	if len(w.owed) > 0 {
		if w.refused {
			n = len(w.owed) // a byte too many is one if it comes with the others
		}
		m, e := s.peers.Send(fd, w.owed[:min(n, len(w.owed))])
		if e != 0 {
			s.leave(f)
			return true
		}
		w.owed = w.owed[m:]
		some = m > 0
	}
	if w.refused && w.rude%4 == 3 && len(w.owed) == 0 && w.asked {
		s.peers.ShutdownWrite(fd)
	}
	return some
}

// leave is called when an upstream that has to answer learns that the relay has gone: the attempt has failed, and another one follows.
func (s *simulation) leave(f *simFlow) {
	if p := f.secure.peer[sideUpstream]; p != nil {
		p.stop()
		f.secure.peer[sideUpstream] = nil
	}
	s.peers.Close(f.fd[sideUpstream])
	f.fd[sideUpstream] = -1
	f.words.front[up], f.words.owed, f.words.asked, f.words.refused, f.words.over = nil, nil, false, false, false
}

// takesFront takes what is in front of the bytes of a side, and returns what follows.
func (w *simWords) takesFront(dir int, b []byte) (rest []byte, ok bool) {
	n := min(len(b), len(w.front[dir]))
	ok = bytes.Equal(b[:n], w.front[dir][:n])
	w.front[dir] = w.front[dir][n:]
	return b[n:], ok
}

// unsaid checks, when nothing is under way any more, that all words have arrived.
func (s *simulation) unsaid() {
	for _, f := range s.flows {
		if n := len(f.words.front[up]) + len(f.words.front[down]) + len(f.words.owed); n > 0 && !f.mayReset() && f.half[up].sent >= int64(f.plan.sniff) {
			s.fail("flow %d: %d bytes of what was to be said before it relays have not arrived\n%s", f.id, n, s.describe())
		}
	}
}

// attemptsWrong reports whether the record of a flow that has had its upstream says another number of attempts than it can have made. One that was
// under way at an upgrade is made again.
func (s *simulation) attemptsWrong(f *simFlow, r *Record) bool {
	most := f.plan.dead + 1 + f.words.rudes + f.secure.retries()
	least := most - f.secure.retries() // not each handshake that goes wrong fails there
	return r.Attempts > most || r.Attempts < least && (s.upgrades+s.deaths == 0 || r.Attempts <= f.plan.dead)
}
