package offline

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/cli"
	"github.com/penstock/penstock/cmd/penstock/internal/config"
	"github.com/penstock/penstock/cmd/penstock/internal/console"
	"github.com/penstock/penstock/cmd/penstock/internal/fleet"
)

const (
	takeBackTimeout = 10 * time.Second // after a signal, too
	allRunTimeout   = 30 * time.Second // how long the others are waited for after a canary
)

// tryCanaries gives a draft to canaries, and then to all relays or to none.
func (c *Publish) tryCanaries(ctx context.Context, o *fleet.Operator, s fleet.State, draft fleet.Draft, stdout *os.File) (int, error) {
	fmt.Fprintln(stdout, "the relays are watched for a few seconds first")
	t, err := o.Try(ctx, s, draft, fleet.TrialConfig{Share: float64(*c.Canary)})
	if err != nil {
		return cli.ExitFailed, c.explainConflict(ctx, o, err, stdout)
	}
	v := t.Version.Version
	line := fmt.Sprintf("version %d is tried for %v by %s of %d: %s", v, time.Duration(c.Wait), config.Counted(len(t.Canaries), "relay"), len(t.Canaries)+t.Others, shortList(t.Canaries))
	if t.LeftOut > 0 {
		line += fmt.Sprintf("; left out, because they are not ready, are drained or have refused a version: %d", t.LeftOut)
	}
	fmt.Fprintln(stdout, line)
	progress := newProgressLine(stdout)
	p := t.Watch(ctx, time.Duration(c.Wait), func(p fleet.Progress) { progress.show(canaryLine(&p)) })
	progress.done()
	if p.Outcome == fleet.Unjudged && c.Unjudged == promoteUnjudged {
		fmt.Fprintf(stdout, "promoted without having been judged: %s\n", console.Printable(p.Why))
		p.Outcome = fleet.Good
	}
	if p.Outcome == fleet.Good {
		if err := t.Promote(ctx); err != nil {
			return exitTakenBack, err
		}
		fmt.Fprintf(stdout, "published version %d\n", v)
		return c.awaitAll(ctx, o, v, allRunTimeout, stdout)
	}
	back, cancel := context.WithTimeout(context.WithoutCancel(ctx), takeBackTimeout)
	defer cancel()
	err = t.TakeBack(back, p.Why)
	why := fmt.Sprintf("version %d was taken back: %s", v, p.Why)
	if p.Outcome == fleet.Unjudged {
		why += "; --unjudged promote publishes it all the same"
	}
	if err != nil {
		why += "; " + err.Error()
	}
	return exitTakenBack, errors.New(why)
}

// awaitAll waits until all relays run a version.
func (c *Publish) awaitAll(ctx context.Context, o *fleet.Operator, version int64, most time.Duration, stdout *os.File) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	line := newProgressLine(stdout)
	p := o.AwaitVersion(ctx, version, func(p fleet.Progress) { line.show(runLine(version, &p)) })
	line.done()
	switch {
	case p.Outcome == fleet.Good && p.Of == 0:
		fmt.Fprintln(stdout, "no relay reports that it has its configuration from there")
		return cli.ExitOK, nil
	case p.Outcome == fleet.Good:
		return cli.ExitOK, nil
	}
	why := fmt.Sprintf("not all relays run version %d: %s", version, p.Why)
	if len(p.Refused) > 0 {
		why = fmt.Sprintf("version %d was refused by %s", version, shortList(p.Refused))
	}
	return exitTakenBack, errors.New(why + "; penstock fleet status shows all; penstock rollback goes back")
}

func canaryLine(p *fleet.Progress) string {
	text := fmt.Sprintf("%d of %d run it; %s; elsewhere %s", p.Run, p.Of, sumsText(&p.Canaries), sumsText(&p.Others))
	if p.Why != "" {
		text += "; " + p.Why
	}
	return text
}

func sumsText(s *fleet.Served) string {
	text := fmt.Sprintf("%s: %d refused, %d failed connects", config.Counted(int(s.Begun), "flow"), s.Ends["refused"], s.ConnectFailures)
	if n, known := s.Empty(); known {
		text += fmt.Sprintf(", %d without a byte from the upstream", n)
	}
	for _, cause := range slices.Sorted(maps.Keys(s.Ends)) {
		if n := s.Ends[cause]; n > 0 && cause != "end" && cause != "refused" {
			text += fmt.Sprintf(", %d %s", n, cause)
		}
	}
	return text
}

func runLine(version int64, p *fleet.Progress) string {
	text := fmt.Sprintf("%d of %s run version %d", p.Run, config.Counted(p.Of, "relay"), version)
	if len(p.Refused) > 0 {
		text += fmt.Sprintf(", %d refused it", len(p.Refused))
	}
	return text
}

// shortList returns the first names of a list.
func shortList(names []string) string {
	const most = 5
	text := strings.Join(names[:min(len(names), most)], ", ")
	if n := len(names) - most; n > 0 {
		text += fmt.Sprintf(", and %d more", n)
	}
	return console.Printable(text)
}

// A progressLine shows what changes all the time: in one line of a terminal, and otherwise as lines, not too many.
type progressLine struct {
	out   *os.File
	width int       // of a terminal; 0: it is none
	last  string    // given
	shown string    // the last line, where the output is not a terminal
	at    time.Time // when it was, or the beginning
}

// linesEvery is the time between two lines that are not on a terminal.
const linesEvery = 5 * time.Second

func newProgressLine(out *os.File) *progressLine {
	return &progressLine{out: out, width: console.TerminalWidth(out), at: time.Now()}
}

func (l *progressLine) show(text string) {
	text = console.Printable(text)
	l.last = text
	switch {
	case l.width > 0:
		fmt.Fprint(l.out, console.EraseLine, text[:min(len(text), l.width-1)])
	case text != l.shown && time.Since(l.at) >= linesEvery:
		l.print()
	}
}

func (l *progressLine) print() {
	fmt.Fprintln(l.out, l.last)
	l.shown, l.at = l.last, time.Now()
}

// done ends the line.
func (l *progressLine) done() {
	switch {
	case l.last == "":
	case l.width > 0:
		fmt.Fprintln(l.out)
	case l.last != l.shown:
		l.print()
	}
}
