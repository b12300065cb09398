//go:build linux

package main

import (
	"os"
	"path/filepath"
	"time"
)

// logKind is a kind in which the log of flows cannot be written any more.
func logKind(k kind, block func(w *testbed) error) *kind {
	k.part = "Logs"
	k.fault = func(w *testbed) error {
		if err := block(w); err != nil {
			return err
		}
		time.Sleep(w.last(4 * time.Second))
		return nil
	}
	k.expect = unnoticedWithin(32)
	return &k
}

func stopReading(w *testbed) error {
	w.reader.block()
	return nil
}

var logKinds = []*kind{
	logKind(kind{
		name: "log-full", title: "The log's disk is full", needs: needs{Log: "full"},
		what: "The file system that the log of flows is on has no room any more. (HAProxy opens no file; its standard output is on that file system.)",
		want: "Lines are lost, and flows do not notice.",
	}, func(w *testbed) error {
		f, err := os.Create(filepath.Join(filepath.Dir(w.setup.log), "filler"))
		if err != nil {
			return err
		}
		defer f.Close()
		for b := make([]byte, 4096); err == nil; {
			_, err = f.Write(b)
		}
		return nil
	}),
	logKind(kind{
		name: "log-fifo", title: "The log is a FIFO that nobody reads", needs: needs{Log: "fifo"},
		what: "The log of flows goes to a FIFO whose reader is there but reads nothing, and which is full. (HAProxy: its standard output.)",
		want: "Lines are lost, and flows do not notice.",
	}, stopReading),
	logKind(kind{
		name: "stderr", title: "Standard error blocks", needs: needs{Log: "stderr"},
		what: "Everything is logged to standard error (HAProxy: standard output), a pipe whose reader reads nothing any more, and which is full.",
		want: "Lines are lost, and flows do not notice.",
	}, stopReading),
	logKind(kind{
		name: "syslog", title: "Syslog does not read", needs: needs{Log: "syslog"},
		what: "The log of flows goes to a syslog server at a Unix socket, which reads nothing any more.",
		want: "Lines are lost, and flows do not notice.",
	}, stopReading),
}
