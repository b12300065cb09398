package keeper

import "syscall"

// HoldConn gives the keeper the socket of a connection or listener, such as a *net.TCPConn or a *net.TCPListener,
// under a key that is not in use. Unlike [Worker.Hold] it waits until that is so: when it returns nil, the socket
// survives this process, and the next worker has it back from [Item.Conn] or [Item.Listener]. That takes one system call,
// and longer only while the keeper has too much to read. Drop ends the holding, and closing c does not.
//
// The error is one of Hold, or [ErrBusy] before Prepared has returned; nothing is held then. Many connections at
// once are held by fewer system calls with Hold and Flush.
func (w *Worker) HoldConn(key [2]uint64, label string, c syscall.Conn) error {
	if w == nil {
		return errNilWorker
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var held error
	err = raw.Control(func(fd uintptr) { // which keeps it open meanwhile
		for {
			held = w.Hold(key, label, []int{int(fd)})
			if held != nil && held != ErrBusy {
				return
			}
			queued := held == nil
			held = w.flushAll()
			if queued && held != nil {
				w.Drop(key)
			}
			if queued || held != nil {
				return
			}
		}
	})
	if err != nil {
		return err
	}
	return held
}

// flushAll is Flush, and waits while the keeper has no room for more.
func (w *Worker) flushAll() (err error) {
	lost := w.wait(func() bool {
		err = ErrBusy
		if w.going {
			err = w.out.flush()
		}
		return err != ErrBusy || !w.going
	})
	if lost != nil {
		return lost
	}
	return err
}
