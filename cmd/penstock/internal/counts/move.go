package counts

import (
	"errors"
	"runtime"
	"sync/atomic"
)

// The values of the word movingAt.
const (
	noMove   = iota
	rowMove  // the words of a row, from the first on that is not 0
	wordMove // one of them: wordAt, fromBeforeAt and toBeforeAt are valid
)

// MoveTo adds the words of r to those of another row of the table, and makes them 0. What others add
// to r meanwhile is moved or stays there. If the process is killed in the middle, the next one
// finishes the move when it opens the memory: nothing is missing then, or counted twice.
func (r *Row) MoveTo(to *Row) {
	t := r.table
	t.mu.Lock()
	defer t.mu.Unlock()
	if r.slot < 0 || to.slot < 0 {
		for i := range r.words {
			if n := r.words[i].Load(); n != 0 {
				to.words[i].Add(n)
				r.words[i].Add(-n)
			}
		}
		return
	}
	t.mem[fromAt].Store(int64(r.slot))
	t.mem[toAt].Store(int64(to.slot))
	t.mem[movingAt].Store(rowMove)
	t.moveWords(r.words, to.words)
	t.mem[movingAt].Store(noMove)
	runtime.KeepAlive(r)
	runtime.KeepAlive(to)
}

// moveWords moves each word; movingAt is rowMove.
func (t *Table) moveWords(from, to []atomic.Int64) {
	for i := range from {
		n := from[i].Load()
		if n == 0 {
			continue
		}
		for moved := false; !moved; {
			was := to[i].Load()
			t.mem[wordAt].Store(int64(i))
			t.mem[fromBeforeAt].Store(n)
			t.mem[toBeforeAt].Store(was)
			t.mem[movingAt].Store(wordMove)
			if moved = to[i].CompareAndSwap(was, was+n); moved {
				from[i].Add(-n)
			}
			t.mem[movingAt].Store(rowMove)
		}
	}
}

// finishMove does the rest of what the process before was moving. Nobody else uses the table yet.
func (t *Table) finishMove() error {
	moving := t.mem[movingAt].Load()
	if moving == noMove {
		return nil
	}
	from, to := t.mem[fromAt].Load(), t.mem[toAt].Load()
	word, used := t.mem[wordAt].Load(), int64(t.used())
	if moving != rowMove && moving != wordMove || from < 0 || from >= used || to < 0 || to >= used || from == to || moving == wordMove && (word < 0 || word >= int64(len(t.layout.Words))) {
		return errors.New("what was being moved is damaged")
	}
	a, b := t.wordsOf(t.row(int(from))), t.wordsOf(t.row(int(to)))
	if moving == wordMove {
		n := t.mem[fromBeforeAt].Load()
		if was := t.mem[toBeforeAt].Load(); b[word].Load() == was {
			b[word].Store(was + n)
		}
		if a[word].Load() == n {
			a[word].Store(0)
		}
	}
	t.mem[movingAt].Store(rowMove)
	t.moveWords(a, b)
	t.mem[movingAt].Store(noMove)
	return nil
}
